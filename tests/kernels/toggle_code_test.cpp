// Each toggle does its thing: shown on the code that the compiler made, not on outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "dispatch/variant.hpp"
#include "tests/kernels/kernel_code.hpp"

namespace fp8_sdpa::tests {
namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The PTX that became an object, of one architecture: of sm_89 where it is one of them, which has
/// all instructions of the ladder, else of the last.
std::string ptx_of(const std::string& object) {
  std::filesystem::path best;
  for (const auto& file : std::filesystem::directory_iterator(object + ".ptx")) {
    if (best.string().ends_with(".compute_89.ptx")) break;
    if (file.path().string().ends_with(".compute_89.ptx") || file.path() > best) best = file.path();
  }
  return text_of(best);
}

/// The kernels of this build, by variant; a variant may have one per FP8 format. What several
/// variants launch, as the merge of KV splits, is of none.
const std::multimap<std::string, KernelCode>& kernels() {
  static const auto kKernels = [] {
    std::multimap<std::string, KernelCode> all;
    // tests/build/recipe_test.sh names a list of its own.
    const char* list = std::getenv("SDPA_KERNEL_OBJECTS");
    std::istringstream objects(text_of(list != nullptr ? list : SDPA_KERNEL_OBJECTS));
    for (std::string object; std::getline(objects, object);) {
      for (KernelCode& kernel : parse_ptx(ptx_of(object))) {
        if (!kernel.variant.empty()) all.emplace(kernel.variant, kernel);
      }
    }
    return all;
  }();
  return kKernels;
}

const KernelCode& kernel_of(const Toggles& toggles) {
  static const KernelCode kNone;
  const auto found = kernels().find(stage_c_name(toggles));
  EXPECT_NE(found, kernels().end()) << "no PTX of " << stage_c_name(toggles);
  return found == kernels().end() ? kNone : found->second;
}

/// The same variant with one toggle changed.
Toggles with(Toggles toggles, bool Toggles::*member, bool value) {
  toggles.*member = value;
  return toggles;
}

int matrix_multiplies(const KernelCode& kernel) {
  return kernel.count("wmma.mma") + kernel.count("mma.sync");
}

/// Barriers of the whole block, and named ones, whose number is in a register.
int block_barriers(const KernelCode& kernel) {
  return kernel.count("bar.sync \t0") + kernel.count("bar.sync 0") + kernel.count("barrier.sync");
}
int named_barriers(const KernelCode& kernel) {
  return kernel.count("bar.sync") + kernel.count("barrier.sync") - block_barriers(kernel);
}

class ToggleCode : public testing::TestWithParam<const Variant*> {
 protected:
  const Toggles& toggles() const { return GetParam()->toggles; }
  const KernelCode& kernel() const { return kernel_of(toggles()); }
};

TEST_P(ToggleCode, CpAsyncCopiesAsynchronously) {
  EXPECT_EQ(kernel().count("cp.async.cg") > 0, toggles().cp_async);
  EXPECT_EQ(kernel().count("cp.async.wait_group") > 0, toggles().cp_async);
}

TEST_P(ToggleCode, WmmaPvMultipliesOnTensorCores) {
  const int scores_alone = matrix_multiplies(
      kernel_of(with(with(toggles(), &Toggles::wmma_pv, false), &Toggles::vec_pv, false)));
  EXPECT_GT(scores_alone, 0);
  if (toggles().wmma_pv) {
    EXPECT_GT(matrix_multiplies(kernel()), scores_alone);
    EXPECT_EQ(kernel().count("cvt.f32.f16"), 0) << "P V converts V to fp32";
  } else {
    EXPECT_EQ(matrix_multiplies(kernel()), scores_alone);
  }
}

TEST_P(ToggleCode, VecPvLoadsPairs) {
  if (!toggles().vec_pv) return;
  const KernelCode& scalar = kernel_of(with(toggles(), &Toggles::vec_pv, false));
  // Scalar P V loads V an element at a time.
  EXPECT_LT(kernel().count("ld.shared.u16") + kernel().count("ld.shared.b16"),
            scalar.count("ld.shared.u16") + scalar.count("ld.shared.b16"));
  EXPECT_GT(kernel().count("ld.shared.v4"), scalar.count("ld.shared.v4"));
}

TEST_P(ToggleCode, WarpSpecHasProducersAndConsumers) {
  const int waits =
      kernel().count("mbarrier.test_wait.parity") + kernel().count("mbarrier.try_wait.parity");
  if (toggles().warp_spec) {
    // Both buffers' full and empty, made before the block parts.
    EXPECT_EQ(kernel().count("mbarrier.init"), 4);
    EXPECT_EQ(block_barriers(kernel()), 1);
    // The producer waits for empty and arrives at full; consumers arrive at full, wait for it and
    // arrive at empty. Consumers wait for each other.
    EXPECT_GE(kernel().count("mbarrier.arrive"), 3);
    EXPECT_GE(waits, 2);
    EXPECT_GE(named_barriers(kernel()), 3);
  } else {
    EXPECT_EQ(kernel().count("mbarrier."), 0);
    EXPECT_EQ(named_barriers(kernel()), 0);
    EXPECT_GE(block_barriers(kernel()), 4);
  }
}

TEST_P(ToggleCode, SwizzleLoadsThroughLdmatrix) {
  EXPECT_EQ(kernel().count("ldmatrix") > 0, toggles().xor_swizzle);
  EXPECT_EQ(kernel().count("mma.sync") > 0, toggles().xor_swizzle);
  EXPECT_EQ(kernel().count("wmma.load") > 0, !toggles().xor_swizzle);
}

TEST_P(ToggleCode, LookupTableReplacesConversions) {
  if (!toggles().kv_lut) return;
  const KernelCode& direct = kernel_of(with(toggles(), &Toggles::kv_lut, false));
  EXPECT_LT(kernel().count("cvt.rn.f16x2.e4m3x2"), direct.count("cvt.rn.f16x2.e4m3x2"));
  EXPECT_GT(kernel().count("ld.shared.u16") + kernel().count("ld.shared.b16"),
            direct.count("ld.shared.u16") + direct.count("ld.shared.b16"));
}

std::vector<const Variant*> stage_c_variants() {
  std::vector<const Variant*> all;
  for (const Variant& variant : variants()) {
    if (variant.family == Family::kStageC) all.push_back(&variant);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ladder, ToggleCode, testing::ValuesIn(stage_c_variants()),
                         [](const testing::TestParamInfo<const Variant*>& info) {
                           return std::string(info.param->name);
                         });

// Of one family: a new one begins as another's copy.
TEST(ToggleCodeOfAll, NoTwoKernelsAreTheSame) {
  std::map<std::pair<Family, std::string>, std::string> symbol_by_body;
  for (const auto& [variant, kernel] : kernels()) {
    const auto found = find_variant(variant);
    ASSERT_TRUE(found.ok()) << found.status().message();
    const auto [other, is_new] =
        symbol_by_body.emplace(std::pair((*found)->family, kernel.body()), kernel.symbol);
    EXPECT_TRUE(is_new) << kernel.symbol << " has the code of " << other->second;
    EXPECT_GT(kernel.instructions.size(), 100U) << kernel.symbol;
  }
  for (const Variant& variant : variants()) {
    EXPECT_GT(kernels().count(std::string(variant.name)), 0U) << variant.name << " has no PTX";
  }
}

TEST(ToggleCodeOfAll, RegisterResidentFamilies) {
  for (const auto& [variant, multiply, converts] :
       {std::tuple{"sm80_mma", "mma.sync.aligned.m16n8k16", true},
        std::tuple{"sm89_mma", "mma.sync.aligned.m16n8k32", false}}) {
    const auto [first, last] = kernels().equal_range(variant);
    ASSERT_NE(first, last);
    for (auto it = first; it != last; ++it) {
      const KernelCode& kernel = it->second;
      EXPECT_EQ(kernel.count("mma.sync"), kernel.count(multiply)) << kernel.symbol;
      EXPECT_GE(kernel.count(multiply), 16) << kernel.symbol;
      EXPECT_GT(kernel.count("cp.async.cg"), 0) << kernel.symbol;
      EXPECT_GT(kernel.count("ldmatrix"), 0) << kernel.symbol;
      // No round trip: what is stored to shared memory is O at the end, 16 bytes at a time, and
      // each row's m and l.
      EXPECT_EQ(kernel.count("st.shared.v4"), 8) << kernel.symbol;
      EXPECT_LE(kernel.count("st.shared") - kernel.count("st.shared.v4"), 4) << kernel.symbol;
      // FP8 operands are multiplied as they are.
      const bool two_terms = kernel.symbol.find("Li2E") != std::string::npos;
      EXPECT_EQ(kernel.count("cvt.rn.f16x2.e") > 0, converts || two_terms) << kernel.symbol;
    }
  }
}

TEST(ToggleCodeOfAll, Sm90TransposesValuesByMatrices) {
  int seen = 0;
  const auto [first, last] = kernels().equal_range("sm90_pre_transpose");
  for (auto it = first; it != last; ++it) {
    const KernelCode& kernel = it->second;
    if (!kernel.pre_transposes()) continue;
    SCOPED_TRACE(kernel.symbol);
    EXPECT_GT(kernel.count("cp.async.bulk.tensor"), 0) << "no TMA";
    EXPECT_GT(kernel.count("ldmatrix.sync.aligned.m8n8.x4.trans"), 0);
    EXPECT_GT(kernel.count("stmatrix.sync.aligned.m8n8.x4"), 0);
    EXPECT_EQ(kernel.count("wgmma"), 0);
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

TEST(ToggleCodeOfAll, Sm90MultipliesByWarpgroupsInItsFormats) {
  int seen = 0;
  for (const Variant& variant : variants()) {
    if (variant.family != Family::kSm90) continue;
    const auto [first, last] = kernels().equal_range(std::string(variant.name));
    ASSERT_NE(first, last) << variant.name;
    for (auto it = first; it != last; ++it) {
      const KernelCode& kernel = it->second;
      SCOPED_TRACE(kernel.symbol);
      EXPECT_EQ(kernel.arch, "sm_90a");
      if (!kernel.attends()) continue;
      const auto wgmmas = [&](std::string_view format) {
        return std::ranges::count_if(kernel.instructions, [&](const std::string& line) {
          return line.starts_with("wgmma.mma_async.") && line.find(format) != std::string::npos;
        });
      };
      // Q K^T and P V take two each at least: head_dim 64, tile_n 64.
      const auto fp8 = wgmmas("k32.f32.e4m3.e4m3 ");
      const auto int8 = wgmmas("k32.s32.s8.s8 ");
      const auto halves = wgmmas("k16.f32.f16.f16 ");
      const auto bfloats = wgmmas("k16.f32.bf16.bf16 ");
      if (variant.int8) {
        EXPECT_GE(int8, 2);
        EXPECT_GE(halves + bfloats, 4);
        EXPECT_TRUE(halves == 0 || bfloats == 0) << "V is of one format";
      } else {
        EXPECT_GE(fp8, 4);
      }
      EXPECT_EQ(kernel.count("wgmma.mma_async"), variant.int8 ? int8 + halves + bfloats : fp8)
          << "another format";
      EXPECT_EQ(kernel.count("mma.sync") + kernel.count("wmma."), 0);
      EXPECT_GT(kernel.count("cp.async.bulk.tensor"), 0) << "no TMA";
      EXPECT_EQ(kernel.count("cp.async.cg") + kernel.count("cp.async.ca"), 0);
      EXPECT_EQ(kernel.count("setmaxnreg.inc"), 1);
      EXPECT_EQ(kernel.count("setmaxnreg.dec"), 1);
      ++seen;
    }
  }
  EXPECT_GT(seen, 0);
}

/// What a shell command prints.
std::string output_of(const std::string& command) {
  constexpr std::size_t kAtOnce = 1 << 16;
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<char> buffer(kAtOnce);
  while (pipe != nullptr) {
    const std::size_t bytes = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (bytes == 0) break;
    text.append(buffer.data(), bytes);
  }
  return text;
}

/// The tensor-core instruction of a family on an architecture.
std::string multiply_of(const Variant& variant, const std::string& arch) {
  return variant.family == Family::kSm89 && arch == "sm_89" ? "QMMA.16832" : "HMMA.16816";
}

// The same on machine code, of every architecture, where the build found a disassembler.
TEST(ToggleCodeOfAll, MachineCodeKeepsWhatPtxSays) {
  const std::string disassembler = SDPA_CUOBJDUMP;
  if (disassembler.empty()) GTEST_SKIP() << "no cuobjdump: the PTX alone is tested";
  std::map<std::pair<std::string, std::string>, KernelCode> by_variant;  // (variant, arch)
  std::istringstream objects(text_of(SDPA_KERNEL_OBJECTS));
  for (std::string object; std::getline(objects, object);) {
    for (KernelCode& kernel :
         parse_sass(output_of("'" + disassembler + "' -sass '" + object + "'"))) {
      if (!kernel.attends()) continue;
      // One wait for each multiply is what ptxas makes of them when it runs out of registers.
      EXPECT_LE(kernel.count("WARPGROUP"), kernel.count("QGMMA")) << kernel.symbol;
      by_variant.insert_or_assign({kernel.variant, kernel.arch}, kernel);
    }
  }
  int compared = 0;
  for (const auto& [key, kernel] : by_variant) {
    const auto found = find_variant(key.first);
    if (!found.ok()) continue;
    const Variant& variant = **found;
    if (variant.family == Family::kSm89 && key.second == "sm_80") continue;  // a trap
    SCOPED_TRACE(key.first + " on " + key.second);
    if (variant.family == Family::kSm90) {
      EXPECT_GT(kernel.count("QGMMA"), 0);
      EXPECT_EQ(kernel.count("HMMA") + kernel.count("HGMMA") + kernel.count("QMMA"), 0);
      EXPECT_GT(kernel.count("UTMALDG"), 0);
      EXPECT_EQ(kernel.count("USETMAXREG"), 2);
      ++compared;
      continue;
    }
    const Toggles& toggles = variant.toggles;
    const bool stage_c = variant.family == Family::kStageC;
    EXPECT_EQ(kernel.count("LDGSTS") > 0, toggles.cp_async || !stage_c);
    // Before sm_90 an mbarrier is a shared-memory atomic.
    const int arrivals = kernel.count("SYNCS.ARRIVE") + kernel.count("ATOMS.ARRIVE");
    EXPECT_EQ(arrivals > 0, toggles.warp_spec);
    const std::string multiply = multiply_of(variant, key.second);
    EXPECT_GT(kernel.count(multiply), 0);
    if (multiply == "QMMA.16832") {
      EXPECT_EQ(kernel.count("HMMA"), 0);
    }
    if (toggles.wmma_pv) {
      const auto scalar =
          by_variant.find({stage_c_name(with(toggles, &Toggles::wmma_pv, false)), key.second});
      ASSERT_NE(scalar, by_variant.end());
      EXPECT_GT(kernel.count("HMMA"), scalar->second.count("HMMA"));
    }
    ++compared;
  }
  int with_code = 0;
  for (const Variant& variant : variants()) {
    with_code += SDPA_HAS_SM90A != 0 || variant.family != Family::kSm90 ? 1 : 0;
  }
  EXPECT_GE(compared, with_code);
}

}  // namespace
}  // namespace fp8_sdpa::tests
