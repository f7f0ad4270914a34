// The reader of ptxas' report, on a log as nvcc 13.0 prints it.
#include "cmake/tools/ptxas_report.hpp"

#include <gtest/gtest.h>

namespace fp8_sdpa::build {
namespace {

constexpr char kLog[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function '_Z5plainPf' for 'sm_89'\n"
    "ptxas info    : Function properties for _Z5plainPf\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]\n"
    "ptxas info    : Compile time = 3.049 ms\n"
    "ptxas info    : Compiling entry function "
    "'_Z3runIN8fp8_sdpa7stage_c3tag11stage_c_lutEEvPf' for 'sm_90a'\n"
    "ptxas info    : Function properties for _Z3runIN8fp8_sdpa7stage_c3tag11stage_c_lutEEvPf\n"
    "    16 bytes stack frame, 24 bytes spill stores, 20 bytes spill loads\n"
    "ptxas info    : Used 127 registers, used 1 barriers, 16 bytes cumulative stack size, "
    "132 bytes smem\n"
    "ptxas info    : Compile time = 1.042 ms\n";

TEST(PtxasReport, ReadsEveryKernelAndArchitecture) {
  std::vector<KernelUsage> kernels;
  std::string error;
  ASSERT_TRUE(parse_ptxas_log(kLog, &kernels, &error)) << error;
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].kernel, "_Z5plainPf");
  EXPECT_EQ(kernels[0].variant, "");
  EXPECT_EQ(kernels[0].arch, "sm_89");
  EXPECT_EQ(kernels[0].registers, 8);
  EXPECT_EQ(kernels[0].static_smem_bytes, 0);
  EXPECT_EQ(kernels[0].spill_stores, 0);
  EXPECT_EQ(kernels[1].variant, "stage_c_lut");
  EXPECT_EQ(kernels[1].arch, "sm_90a");
  EXPECT_EQ(kernels[1].registers, 127);
  EXPECT_EQ(kernels[1].static_smem_bytes, 132);
  EXPECT_EQ(kernels[1].spill_stores, 24);
  EXPECT_EQ(kernels[1].spill_loads, 20);
}

TEST(PtxasReport, RefusesAKernelWithoutARegisterCount) {
  std::vector<KernelUsage> kernels;
  std::string error;
  const std::string cut(kLog, std::string(kLog).find("ptxas info    : Used 127"));
  EXPECT_FALSE(parse_ptxas_log(cut, &kernels, &error));
  EXPECT_NE(error.find("stage_c_lut"), std::string::npos) << error;
  EXPECT_NE(error.find("sm_90a"), std::string::npos) << error;
}

TEST(PtxasReport, FindsTheTagAndNothingElse) {
  EXPECT_EQ(variant_of("_ZN8fp8_sdpa3tag16stage_c_cp_asyncE"), "stage_c_cp_async");
  EXPECT_EQ(variant_of("_ZN8fp8_sdpa3tag26sm90_kv_split2_d64_roundedE"), "sm90_kv_split2");
  EXPECT_EQ(variant_of("_Z5plainPf"), "");
  EXPECT_EQ(variant_of("_Z13tagged_kernelPf"), "");
  EXPECT_EQ(variant_of("_ZN3tag99shortE"), "");
  EXPECT_EQ(variant_of("_ZN3tagE"), "");
}

TEST(PtxasReport, WritesJson) {
  EXPECT_EQ(to_json({}), "[]\n");
  const KernelUsage usage{"_Zk", "stage_c", "sm_80", 40, 384, 0, 0};
  EXPECT_EQ(to_json({usage}),
            "[\n  {\"kernel\": \"_Zk\", \"variant\": \"stage_c\", \"arch\": \"sm_80\", "
            "\"registers\": 40, \"static_smem_bytes\": 384, \"spill_stores\": 0, "
            "\"spill_loads\": 0}\n]\n");
}

}  // namespace
}  // namespace fp8_sdpa::build
