// The table of variants and the toggles of the ladder.
#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <set>
#include <string>
#include <utility>

#include "dispatch/resources.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/plan.hpp"

namespace fp8_sdpa {
namespace {

TEST(VariantTable, NamesAreStemsAndUnique) {
  std::set<std::string_view> names;
  for (const Variant& variant : variants()) {
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name << " stands twice";
    for (const char c : variant.name) {
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') << variant.name;
    }
    EXPECT_FALSE(variant.summary.empty()) << variant.name;
  }
  EXPECT_FALSE(names.empty());
}

TEST(VariantTable, StageCNamesSayTheToggles) {
  for (const Variant& variant : variants()) {
    if (variant.family != Family::kStageC) continue;
    EXPECT_EQ(variant.name, stage_c_name(variant.toggles));
    EXPECT_TRUE(check_toggles(variant.toggles).ok()) << variant.name;
  }
}

// Sanitizer builds have a part of the ladder: with any two settings of its switches that go
// together, some variant.
TEST(VariantTable, EveryPairOfSwitchesIsCompiled) {
  // The way K and V come in (registers, cp.async, a producer warp), P V, the lookup table, swizzle.
  using Settings = std::array<int, 4>;
  const auto settings = [](const Toggles& t) {
    return Settings{t.warp_spec ? 2 : (t.cp_async ? 1 : 0), t.wmma_pv ? 2 : (t.vec_pv ? 1 : 0),
                    t.kv_lut ? 1 : 0, t.xor_swizzle ? 1 : 0};
  };
  constexpr Settings kChoices = {3, 3, 2, 2};
  std::set<std::array<int, 4>> pairs;  // switch, its setting, another switch, its setting
  for (const Variant& variant : variants()) {
    if (variant.family != Family::kStageC) continue;
    const Settings s = settings(variant.toggles);
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) pairs.insert({a, s[a], b, s[b]});
    }
  }
  std::size_t wanted = 0;
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = a + 1; b < 4; ++b) {
      wanted += static_cast<std::size_t>(kChoices[a] * kChoices[b]);
    }
  }
  EXPECT_EQ(pairs.size(), wanted);
}

// Tiles are 32 rows by 32 keys (Stage C) or 128 (mma.sync).
TEST(VariantTable, ALadderVariantHasTheSameResourcesAtEachHeadDim) {
  for (const Variant& variant : variants()) {
    if (variant.family == Family::kSm90 || variant.family == Family::kDecode) continue;
    const Resources resources = resources_at(variant, 64);
    EXPECT_GT(resources.threads, 0) << variant.name;
    EXPECT_EQ(resources.threads, variant.resources.threads) << variant.name;
    EXPECT_EQ(resources.shared_bytes, variant.resources.shared_bytes) << variant.name;
    EXPECT_EQ(resources.tile_m, 32) << variant.name;
    EXPECT_EQ(resources.tile_n, variant.family == Family::kStageC ? 32 : 128) << variant.name;
  }
}

TEST(Toggles, AreThoseOfTheConfiguration) {
  EXPECT_EQ(toggles_chosen(), FP8_SDPA_TOGGLES_CHOSEN != 0);
}

// 64 KiB for the ladder; the others state limits of their own: sm90 what a block of sm_90 may opt
// in to, decode what one of sm_89 may.
TEST(VariantTable, ResourcesAreWithinTheLimitsOfTheFamily) {
  for (const Variant& variant : variants()) {
    const std::size_t limit = 1024U * (variant.family == Family::kSm90     ? 227U
                                       : variant.family == Family::kDecode ? 99U
                                                                           : 64U);
    EXPECT_GT(variant.resources.shared_bytes, 0U) << variant.name;
    EXPECT_EQ(variant.resources.threads % 32, 0) << variant.name;
    EXPECT_LE(variant.resources.shared_bytes, limit) << variant.name;
  }
}

TEST(VariantTable, UnknownNameListsTheNearest) {
  for (const auto& [name, nearest] :
       {std::pair{"stage_c_cp_asinc", "stage_c_cp_async stage_c_lut_cp_async stage_c_wmma_pv"},
        {"sm80", "sm80_mma sm89_mma stage_c"},
        // By every letter, the first one too.
        {"sm9_short", "sm90_short sm89_mma sm80_mma"},
        {"mm80_mma", "sm80_mma sm89_mma sm90_short"}}) {
    const auto found = find_variant(name);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(found.status().message(),
              "unknown variant '" + std::string(name) + "'; nearest: " + nearest);
  }
}

TEST(Toggles, IllegalCombinationsAreDeclinedWithTheReason) {
  EXPECT_NE(check_toggles({.vec_pv = true, .wmma_pv = true}).message().find("exclude each other"),
            std::string::npos);
  EXPECT_NE(check_toggles({.warp_spec = true}).message().find("needs USE_CP_ASYNC"),
            std::string::npos);
}

TEST(Toggles, ThirtySixCombinationsAreLegal) {
  int legal = 0;
  constexpr int kCombinations = 64;
  for (int bits = 0; bits < kCombinations; ++bits) {
    const Toggles toggles{(bits & 1) != 0, (bits & 2) != 0,  (bits & 4) != 0,
                          (bits & 8) != 0, (bits & 16) != 0, (bits & 32) != 0};
    if (check_toggles(toggles).ok()) ++legal;
  }
  EXPECT_EQ(legal, 36);
}

TEST(VariantTable, EveryLegalCombinationIsAVariant) {
  int stage_c = 0;
  for (const Variant& variant : variants()) stage_c += variant.family == Family::kStageC ? 1 : 0;
  EXPECT_EQ(stage_c, 36);  // names are unique and say the toggles, which are legal
}

}  // namespace
}  // namespace fp8_sdpa
