// "Is FP8 really used?" Answered by machine code: where a kernel claims FP8 tensor cores, its loop
// multiplies with QGMMA (sm_90) or QMMA (sm_89) and with nothing else; the WMMA ladder with HMMA.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dispatch/variant.hpp"
#include "tests/kernels/kernel_code.hpp"

namespace fp8_sdpa::tests {
namespace {

/// Why a kernel's matrix multiplies are not what its family and architecture promise; or nothing.
/// An FP8 kernel has a native instruction on the architecture that it is named after: sm89 on
/// sm_89, sm90 on sm_90a. Elsewhere the compiler emulates it, which is right, but no proof.
std::string complaint(const std::string& variant, const KernelCode& kernel) {
  const int half = kernel.count("HMMA") + kernel.count("HGMMA");
  const auto expect_fp8 = [&](const char* mnemonic) -> std::string {
    if (kernel.count(mnemonic) == 0) return std::string("no ") + mnemonic;
    if (half > 0) return std::to_string(half) + " half multiplies beside " + mnemonic;
    return "";
  };
  if (variant.starts_with("sm89") && kernel.arch == "sm_89") return expect_fp8("QMMA");
  if (variant.starts_with("sm90") && kernel.arch.starts_with("sm_90")) return expect_fp8("QGMMA");
  if (variant.starts_with("stage_c") || variant.starts_with("sm80") ||
      variant.starts_with("decode")) {
    if (kernel.count("HMMA") == 0) return "no HMMA";
    if (kernel.count("QMMA") + kernel.count("QGMMA") > 0) return "FP8 multiplies";
  }
  return "";
}

KernelCode made_code(const std::string& arch, const std::vector<std::string>& instructions) {
  KernelCode kernel;
  kernel.arch = arch;
  kernel.instructions = instructions;
  return kernel;
}

TEST(Fp8Code, TheProofSeesWhatIsMissingAndWhatIsTooMuch) {
  const std::string qmma = "QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4";
  const std::string hmma = "@P0 HMMA.16816.F32 R4, R8, R12, R4";
  const std::string qgmma = "QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24";
  EXPECT_EQ(complaint("sm89_mma", made_code("sm_89", {qmma})), "");
  EXPECT_EQ(complaint("sm89_mma", made_code("sm_89", {hmma})), "no QMMA");
  EXPECT_EQ(complaint("sm89_mma", made_code("sm_89", {qmma, hmma})),
            "1 half multiplies beside QMMA");
  EXPECT_EQ(complaint("sm89_mma", made_code("sm_90a", {hmma})), "") << "emulated, and said so";
  EXPECT_EQ(complaint("sm90_pingpong", made_code("sm_90a", {qgmma})), "");
  EXPECT_EQ(complaint("sm90_pingpong", made_code("sm_90a", {"HGMMA.64x64x16.F32 R24"})),
            "no QGMMA");
  EXPECT_EQ(complaint("stage_c", made_code("sm_80", {hmma})), "");
  EXPECT_EQ(complaint("stage_c", made_code("sm_80", {"FFMA R1, R2, R3, R4"})), "no HMMA");
}

/// The kernels of the build's objects, disassembled.
std::vector<KernelCode> machine_code(const std::string& disassembler) {
  std::vector<KernelCode> all;
  std::ifstream objects(SDPA_KERNEL_OBJECTS);
  for (std::string object; std::getline(objects, object);) {
    const std::string command = "'" + disassembler + "' -sass '" + object + "'";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    std::vector<char> piece(std::size_t{1} << 16);
    while (pipe != nullptr) {
      const std::size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe.get());
      if (bytes == 0) break;
      text.append(piece.data(), bytes);
    }
    for (KernelCode& kernel : parse_sass(text)) all.push_back(std::move(kernel));
  }
  return all;
}

TEST(Fp8Code, MultipliesInTheFormatThatItClaims) {
  const std::string disassembler = SDPA_CUOBJDUMP;
  if (disassembler.empty()) GTEST_SKIP() << "no cuobjdump: the PTX alone is tested";
  int judged = 0;
  for (const KernelCode& kernel : machine_code(disassembler)) {
    const auto variant = find_variant(kernel.variant);
    if (!variant.ok()) continue;
    if ((*variant)->name.starts_with("sm89") && kernel.arch == "sm_80") continue;  // a trap
    if (!kernel.attends()) continue;
    EXPECT_EQ(complaint(kernel.variant, kernel), "") << kernel.symbol << " on " << kernel.arch;
    ++judged;
  }
  EXPECT_GE(judged, static_cast<int>(variants().size()));
}

}  // namespace
}  // namespace fp8_sdpa::tests
