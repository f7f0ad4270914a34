// The public API without a kernel: supports() and its reasons. Nothing here is launched.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "dispatch/variant.hpp"
#include "dispatch/variant_impl.hpp"
#include "fp8_sdpa/plan.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa {
namespace {

alignas(16) std::uint8_t g_q[4096], g_k[4096], g_v[4096];
alignas(16) std::uint16_t g_o[4096];
float g_lse[64];
const float g_scales[2] = {1.0F, 1.0F};

// A valid problem: batch 1, 2 heads, 32 queries and keys, head_dim 64.
Problem valid_problem() {
  Problem p;
  p.batch = 1;
  p.heads_q = p.heads_kv = 2;
  p.seq_q = p.seq_kv = 32;
  p.head_dim = 64;
  p.q = {g_q, Dtype::kE4M3, 4096, 2048, 64, 1};
  p.k = {g_k, Dtype::kE4M3, 4096, 2048, 64, 1};
  p.v = {g_v, Dtype::kE4M3, 4096, 2048, 64, 1};
  p.o = {g_o, Dtype::kHalf, 4096, 2048, 64, 1};
  p.lse = g_lse;
  p.descales = {g_scales, g_scales, g_scales};
  p.softmax_scale = 0.125F;
  return p;
}

// Toggles that someone chose pick the variant; else problem and device do (choose_test.cpp).
TEST(Plan, ValidProblemIsPlannedAsTheBuildWasConfigured) {
  const auto made = plan(valid_problem(), host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->variant().name,
            toggles_chosen() ? stage_c_name(configured_toggles()) : "sm80_mma");
  EXPECT_EQ(made->workspace_bytes(), 0U);
}

TEST(Plan, ABuildThatChoosesNoTogglesHasTheirDefaults) {
  EXPECT_TRUE(toggles_chosen() || stage_c_name(configured_toggles()) == "stage_c_cp_async");
}

TEST(Plan, NoScaleMeansOneOverTheRootOfTheHeadDim) {
  Problem problem = valid_problem();
  problem.softmax_scale = 0.0F;
  const auto made = plan(problem, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->problem().softmax_scale, 0.125F);
}

struct BadProblem {
  const char* name;
  void (*spoil)(Problem&);
  StatusCode code;
  const char* reason;  // how the message begins
};

void PrintTo(const BadProblem& bad, std::ostream* os) { *os << bad.name; }

bool declines_head_dim(const Variant& variant, const Status& status) {
  return variant.family == Family::kSm90 &&
         status.message().starts_with(std::string(variant.name) + " serves head_dim ");
}

/// Of a variant of other formats.
bool declines_fp8(const Variant& variant, const Status& status) {
  return status.code() == StatusCode::kUnsupported &&
         status.message().starts_with(std::string(variant.name) + " serves int8 q and k and ");
}

class BadProblems : public testing::TestWithParam<BadProblem> {};

TEST_P(BadProblems, AreDeclinedWithTheReason) {
  Problem problem = valid_problem();
  GetParam().spoil(problem);
  for (const Variant& variant : variants()) {
    const Status status = variant.supports(problem, host_executor());
    EXPECT_EQ(status.code(), GetParam().code) << variant.name << ": " << status.message();
    // What a family does not serve is declined in its name.
    const bool by_family = GetParam().code == StatusCode::kUnsupported;
    const std::string who =
        variant.family == Family::kStageC ? "stage_c " : std::string(variant.name) + " ";
    if (by_family && declines_head_dim(variant, status)) continue;  // said first
    if (by_family && variant.int8) {
      EXPECT_TRUE(declines_fp8(variant, status)) << status.message();
      continue;
    }
    const std::string reason = (by_family ? who : "") + GetParam().reason;
    EXPECT_EQ(status.message().rfind(reason, 0), 0U) << status.message();
  }
  EXPECT_FALSE(plan(problem, host_executor()).ok());
}

constexpr auto kInvalid = StatusCode::kInvalidArgument;
constexpr auto kUnsupported = StatusCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    Api, BadProblems,
    testing::Values(
        BadProblem{"BatchZero", [](Problem& p) { p.batch = 0; }, kInvalid,
                   "batch is 0; it must be at least 1"},
        BadProblem{"NegativeHeads", [](Problem& p) { p.heads_q = -2; }, kInvalid,
                   "heads_q is -2; it must be at least 1"},
        BadProblem{"HeadsNotAMultiple", [](Problem& p) { p.heads_kv = 3; }, kInvalid,
                   "heads_q is 2; it must be a multiple of heads_kv, 3"},
        BadProblem{"NoKeys", [](Problem& p) { p.seq_kv = 0; }, kInvalid,
                   "seq_kv is 0; it must be at least 1"},
        BadProblem{"NegativeQueries", [](Problem& p) { p.seq_q = -1; }, kInvalid,
                   "seq_q is -1; it must be at least 1"},
        BadProblem{"HeadDimTooLarge", [](Problem& p) { p.head_dim = 512; }, kInvalid,
                   "head_dim is 512; at most 256 is served"},
        BadProblem{"ScaleNegative", [](Problem& p) { p.softmax_scale = -1.0F; }, kInvalid,
                   "softmax_scale is -1.000000; it must be positive and finite, or 0 for"},
        BadProblem{"ScaleNan",
                   [](Problem& p) { p.softmax_scale = std::numeric_limits<float>::quiet_NaN(); },
                   kInvalid, "softmax_scale is nan; it must be positive and finite"},
        BadProblem{"QNull", [](Problem& p) { p.q.data = nullptr; }, kInvalid, "q.data is null"},
        BadProblem{"KMisaligned", [](Problem& p) { p.k.data = g_k + 8; }, kInvalid,
                   "k.data is not aligned to 16 bytes"},
        BadProblem{"VIsHalf", [](Problem& p) { p.v.dtype = Dtype::kHalf; }, kInvalid,
                   "v.dtype is half; it must be e4m3 or e5m2"},
        BadProblem{"OutputIsE5m2", [](Problem& p) { p.o.dtype = Dtype::kE5M2; }, kInvalid,
                   "o.dtype is e5m2; it must be half, bf16 or e4m3"},
        BadProblem{"OutputWithoutItsScale", [](Problem& p) { p.o.dtype = Dtype::kE4M3; }, kInvalid,
                   "o_scale is null"},
        BadProblem{"OutputScaleMisaligned",
                   [](Problem& p) {
                     p.o.dtype = Dtype::kE4M3;
                     p.o_scale = reinterpret_cast<const float*>(g_k + 2);
                   },
                   kInvalid, "o_scale is not aligned to 4 bytes"},
        BadProblem{"OutputScaleInOutput",
                   [](Problem& p) {
                     p.o.dtype = Dtype::kE4M3;
                     p.o_scale = static_cast<const float*>(p.o.data);
                   },
                   kInvalid, "o overlaps o_scale; it needs memory of its own"},
        BadProblem{"ScaleOfAHalfOutput", [](Problem& p) { p.o_scale = p.descales.q; }, kInvalid,
                   "o_scale is given, and o.dtype is half; only an e4m3 o has a scale"},
        BadProblem{"UnknownDtype", [](Problem& p) { p.q.dtype = static_cast<Dtype>(9); }, kInvalid,
                   "q.dtype is unknown; it must be e4m3, e5m2 or int8"},
        BadProblem{"DimNotContiguous", [](Problem& p) { p.q.stride_dim = 2; }, kInvalid,
                   "q.stride_dim is 2; head_dim must be contiguous"},
        BadProblem{"ValuesNotContiguous", [](Problem& p) { p.v.stride_dim = 2; }, kInvalid,
                   "v.stride_dim is 2; head_dim must be contiguous"},
        BadProblem{"StrideNotAMultiple", [](Problem& p) { p.k.stride_seq = 72; }, kInvalid,
                   "k.stride_seq is 72 elements; it must be a non-negative multiple of 16 bytes"},
        BadProblem{"StrideNegative", [](Problem& p) { p.v.stride_head = -2048; }, kInvalid,
                   "v.stride_head is -2048 elements; it must be a non-negative multiple"},
        BadProblem{"StrideHuge", [](Problem& p) { p.v.stride_seq = std::int64_t{1} << 60; },
                   kInvalid, "v.stride_seq is 1152921504606846976 elements; the tensor's extent"},
        BadProblem{"OutputRowsOverlap", [](Problem& p) { p.o.stride_seq = 32; }, kInvalid,
                   "o.stride_seq is 32; output rows would overlap (at least 64 is needed)"},
        BadProblem{"OutputIsInput", [](Problem& p) { p.o.data = g_q; }, kInvalid,
                   "o overlaps q; it needs memory of its own"},
        BadProblem{"LseIsOutput", [](Problem& p) { p.lse = reinterpret_cast<float*>(g_o); },
                   kInvalid, "lse overlaps o; it needs memory of its own"},
        BadProblem{"NoDescale", [](Problem& p) { p.descales.k = nullptr; }, kInvalid,
                   "descales.k is null"},
        BadProblem{"UnknownMask", [](Problem& p) { p.mask = static_cast<Mask>(7); }, kInvalid,
                   "mask is 7; it must be none or causal"},
        BadProblem{"UnknownSum", [](Problem& p) { p.lse_sum = static_cast<LseSum>(2); }, kInvalid,
                   "lse_sum is 2; it must be the denominator or exact"},
        BadProblem{"KIsInt8", [](Problem& p) { p.k.dtype = Dtype::kInt8; }, kInvalid,
                   "q.dtype is e4m3 and k.dtype int8; both are int8, or neither"},
        BadProblem{"VOfInt8IsE4M3", [](Problem& p) { p.q.dtype = p.k.dtype = Dtype::kInt8; },
                   kInvalid, "v.dtype is e4m3; it must be half or bf16 where q is int8"},
        BadProblem{"VIsInt8", [](Problem& p) { p.v.dtype = Dtype::kInt8; }, kInvalid,
                   "v.dtype is int8; it must be e4m3 or e5m2"},
        BadProblem{"NoDescaleOfV", [](Problem& p) { p.descales.v = nullptr; }, kInvalid,
                   "descales.v is null"},
        BadProblem{"MixedFormats", [](Problem& p) { p.v.dtype = Dtype::kE5M2; }, kUnsupported,
                   "serves one FP8 format for q, k and v"}),
    [](const testing::TestParamInfo<BadProblem>& info) { return std::string(info.param.name); });

struct FamilyLimit {
  const char* name;
  void (*change)(Problem&);
  bool sm90;           // served by the sm90 family, by every variant of it that has the head dim
  bool decode;         // served by the decode family
  const char* reason;  // of those that do not serve it
};

void PrintTo(const FamilyLimit& limit, std::ostream* os) { *os << limit.name; }

void head_dim_128(Problem& p) {
  p.head_dim = 128;
  p.heads_q = p.heads_kv = 1;
  p.q.stride_seq = p.k.stride_seq = p.v.stride_seq = p.o.stride_seq = 128;
}

class FamilyLimits : public testing::TestWithParam<FamilyLimit> {};

TEST_P(FamilyLimits, AreServedByOneSideAndDeclinedByTheOtherWithTheReason) {
  Problem problem = valid_problem();
  GetParam().change(problem);
  int served = 0;
  for (const Variant& variant : variants()) {
    const bool is_sm90 = variant.family == Family::kSm90;
    const Status status = variant.supports(problem, host_executor());
    if (variant.int8) {
      EXPECT_TRUE(declines_fp8(variant, status) || declines_head_dim(variant, status))
          << status.message();
      continue;
    }
    if (variant.family == Family::kDecode && GetParam().decode) {
      EXPECT_TRUE(status.ok()) << status.message();
      continue;
    }
    if (is_sm90 == GetParam().sm90 && variant.family != Family::kDecode) {
      served += status.ok() ? 1 : 0;
      const bool other_head_dim =
          is_sm90 && status.message().starts_with(std::string(variant.name) + " serves head_dim ");
      const bool other_keys = is_sm90 && status.message().find(" keys, not ") != std::string::npos;
      EXPECT_TRUE(status.ok() || other_head_dim || other_keys) << status.message();
    } else {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported) << variant.name;
      const std::string who =
          variant.family == Family::kStageC ? "stage_c" : std::string(variant.name);
      if (is_sm90 && declines_head_dim(variant, status)) continue;  // said first
      const std::string reason = who + " " + GetParam().reason;
      EXPECT_EQ(status.message().rfind(reason, 0), 0U) << status.message();
    }
  }
  EXPECT_GT(served, 0);
  const auto made = plan(problem, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Family chosen = made->variant().family;
  EXPECT_EQ(chosen == Family::kSm90 || chosen == Family::kDecode, GetParam().sm90)
      << made->variant().name;
}

INSTANTIATE_TEST_SUITE_P(
    Api, FamilyLimits,
    testing::Values(
        FamilyLimit{"HeadDim128", head_dim_128, true, true, "serves head_dim 64, not 128"},
        FamilyLimit{"Causal", [](Problem& p) { p.mask = Mask::kCausal; }, true, true,
                    "serves no mask, not causal"},
        FamilyLimit{"Fp8Output",
                    [](Problem& p) {
                      p.o.dtype = Dtype::kE4M3;
                      p.o_scale = p.descales.q;
                    },
                    true, true, "serves a half or bf16 o, not e4m3"},
        FamilyLimit{"GroupedHeads", [](Problem& p) { p.heads_kv = 1; }, true, true,
                    "serves heads_q == heads_kv, not 2 and 1"},
        FamilyLimit{"TransposedV",
                    [](Problem& p) {
                      p.v.stride_seq = 1;
                      p.v.stride_dim = 32;
                    },
                    true, false, "serves a row-major v (stride_dim 1), not stride_dim 32"},
        FamilyLimit{"E5M2", [](Problem& p) { p.q.dtype = p.k.dtype = p.v.dtype = Dtype::kE5M2; },
                    false, true, "serves e4m3, not e5m2"}),
    [](const testing::TestParamInfo<FamilyLimit>& info) { return std::string(info.param.name); });

TEST(Supports, Sm90VariantsNameTheHeadDimsThatTheyServe) {
  Problem problem = valid_problem();
  problem.head_dim = 32;
  for (const Variant& variant : variants()) {
    if (variant.family != Family::kSm90) continue;
    const Status status = variant.supports(problem, host_executor());
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << variant.name;
    EXPECT_TRUE(status.message().starts_with(std::string(variant.name) + " serves head_dim "))
        << status.message();
    EXPECT_TRUE(status.message().ends_with(", not 32")) << status.message();
  }
}

TEST(Supports, AVariantWithoutCodeSaysHowToBuildIt) {
  detail::VariantImpl impl = *variants().front().impl;
  impl.device = impl.host = {};
  Variant variant = variants().front();
  variant.impl = &impl;
  const Status host = variant.supports(valid_problem(), host_executor());
  EXPECT_EQ(host.code(), StatusCode::kUnsupported);
  EXPECT_EQ(host.message(), "this build has no host code: configure it with SDPA_HOST_EXECUTOR=ON");
  const Status device = variant.supports(valid_problem(), tests::made_up_device(90));
  EXPECT_EQ(device.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(device.message() == "this build has no device code: configure it where nvcc is" ||
              device.message() == std::string(variant.name) +
                                      " has no device code in this build: configure it with 90a "
                                      "among SDPA_CUDA_ARCHS")
      << device.message();
}

TEST(Supports, SharedMemoryOfABlockSuffices) {
  for (const Variant& variant : variants()) {
    Device small = host_executor();
    if (!variant.supports(valid_problem(), small).ok()) continue;  // for other head dims
    small.shared_memory_per_block = variant.resources.shared_bytes;
    EXPECT_TRUE(variant.supports(valid_problem(), small).ok()) << variant.name;
    --small.shared_memory_per_block;
    EXPECT_NE(variant.supports(valid_problem(), small).message().find(" bytes of shared memory "),
              std::string::npos)
        << variant.name;
  }
}

}  // namespace
}  // namespace fp8_sdpa
