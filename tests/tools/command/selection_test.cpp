// Which variants, shapes, seeds and device a command line picks.
#include "benchmarks/command/selection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/command/device_choice.hpp"
#include "dispatch/toggles.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

/// A table of names; nothing of it is launched.
std::vector<Variant> small_table() {
  std::vector<Variant> variants;
  for (const auto& [name, toggles] :
       {std::pair{"stage_c", Toggles{}}, std::pair{"stage_c_lut", Toggles{.kv_lut = true}},
        std::pair{"stage_c_cp_async", Toggles{.cp_async = true}}}) {
    variants.push_back({name, "", Family::kStageC, toggles, {}, nullptr});
  }
  return variants;
}

std::string names_of(const Result<std::vector<const Variant*>>& variants) {
  if (!variants.ok()) return variants.status().message();
  std::string out;
  for (const Variant* variant : *variants) out += std::string(variant->name) + " ";
  return out;
}

TEST(Selection, SplitsLists) {
  EXPECT_EQ(split_list("a,b,,a,c,"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(split_list("").empty());
  EXPECT_TRUE(split_list(",,").empty());
}

TEST(Selection, PicksVariantsInTheTablesOrder) {
  const std::vector<Variant> variants = small_table();
  EXPECT_EQ(names_of(select_variants({"stage_c"}, variants)), "stage_c ");
  EXPECT_EQ(names_of(select_variants({"stage_c_cp_async", "stage_c"}, variants)),
            "stage_c stage_c_cp_async ");
  EXPECT_EQ(names_of(select_variants({"*_lut", "stage_c_lut"}, variants)), "stage_c_lut ");
  EXPECT_EQ(names_of(select_variants({"stage_c_?*"}, variants)), "stage_c_lut stage_c_cp_async ");
  EXPECT_EQ(names_of(select_variants({"all"}, variants)), "stage_c stage_c_lut stage_c_cp_async ");
}

TEST(Selection, RefusesAPatternThatPicksNothing) {
  const std::vector<Variant> variants = small_table();
  const std::string there = "expected stage_c, stage_c_lut, stage_c_cp_async, a glob or all";
  EXPECT_EQ(names_of(select_variants({"stage_c", "stage_d"}, variants)),
            "unknown variant \"stage_d\": " + there);
  EXPECT_EQ(names_of(select_variants({"all", "x\ny"}, variants)),
            "unknown variant \"x\\x0ay\": " + there);
  EXPECT_EQ(names_of(select_variants({}, variants)),
            "no variant is named: expected stage_c, stage_c_lut, stage_c_cp_async");
}

TEST(Selection, EnvironmentOverridesEachToggle) {
  for (const ToggleName& toggle : kToggleNames) {
    Toggles base;
    // A warp-specialised variant needs cp.async.
    base.cp_async = toggle.member == &Toggles::warp_spec;
    const auto on = default_toggles(base, environment_of({{toggle.variable, "1"}}));
    ASSERT_TRUE(on.ok()) << on.status().message();
    Toggles want = base;
    want.*toggle.member = true;
    EXPECT_EQ(*on, want) << toggle.variable;
    const auto off = default_toggles(want, environment_of({{toggle.variable, "0"}}));
    ASSERT_TRUE(off.ok()) << off.status().message();
    EXPECT_EQ(*off, base) << toggle.variable;
  }
}

TEST(Selection, RefusesToggleValuesThatAreNotZeroOrOne) {
  for (const char* value : {"2", "", "on", "01", " 1"}) {
    const auto toggles = default_toggles({}, environment_of({{"USE_WMMA_PV", value}}));
    ASSERT_FALSE(toggles.ok()) << value;
    EXPECT_EQ(toggles.status().message(),
              "environment variable USE_WMMA_PV=\"" + std::string(value) + "\": expected 0 or 1");
  }
}

TEST(Selection, DeclinesIllegalCombinationsWithTheReason) {
  const auto toggles =
      default_toggles({}, environment_of({{"USE_VEC_PV", "1"}, {"USE_WMMA_PV", "1"}}));
  ASSERT_FALSE(toggles.ok());
  const std::string reason = check_toggles({.vec_pv = true, .wmma_pv = true}).message();
  EXPECT_EQ(toggles.status().message(),
            "illegal combination of toggles USE_VEC_PV=1 USE_WMMA_PV=1: " + reason);
}

TEST(Selection, FindsTheVariantOfToggles) {
  const std::vector<Variant> variants = small_table();
  const auto found = variant_of({.kv_lut = true}, variants);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)->name, "stage_c_lut");
  const auto missing = variant_of({.vec_pv = true}, variants);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message(),
            "unknown variant \"stage_c_vec_pv\": expected stage_c, stage_c_lut, stage_c_cp_async");
}

class ConfigSelection : public testing::Test {
 protected:
  ConfigSelection() {
    for (const auto& [name, suite] :
         {std::pair{"small", "default"}, std::pair{"mission", "default"},
          std::pair{"batch2", "extended"}}) {
      reference::Shape shape;
      shape.name = name;
      shape.suites = {suite};
      config.shapes.push_back(shape);
    }
    config.seeds = {0, 5, UINT64_MAX};
  }
  static std::string names(const Result<std::vector<reference::Shape>>& shapes) {
    if (!shapes.ok()) return shapes.status().message();
    std::string out;
    for (const auto& shape : *shapes) out += shape.name + " ";
    return out;
  }
  reference::Config config;
};

TEST(ToggleNames, AreNotMisspelt) {
  EXPECT_TRUE(check_toggle_names({"PATH", "USER", "USE_CP_ASYNC", "USE_KV_LUT", "USE_CUDA",
                                  "USE_TF", "USE_MKLDNN", "USE_"})
                  .ok());
  for (const auto& [name, right] : {std::pair{"USE_CPASYNC", "USE_CP_ASYNC"},
                                    {"USE_WMMA_VP", "USE_WMMA_PV"},
                                    {"USE_WRAP_SPEC", "USE_WARP_SPEC"},
                                    {"USE_KVLUTS", "USE_KV_LUT"}}) {
    EXPECT_EQ(check_toggle_names({name}).message(),
              "environment variable " + std::string(name) + ": no such toggle, expected " + right);
  }
  const auto here = environment_names();
  EXPECT_NE(std::find(here.begin(), here.end(), "PATH"), here.end());
}

TEST_F(ConfigSelection, PicksShapes) {
  EXPECT_EQ(names(select_shapes({"batch2", "small"}, config)), "small batch2 ");
  EXPECT_EQ(names(select_shapes({"*"}, config)), "small mission batch2 ");
  EXPECT_EQ(names(select_shapes({"huge"}, config)),
            "unknown shape \"huge\": expected small, mission, batch2, a glob or all");
}

TEST_F(ConfigSelection, PicksSuites) {
  EXPECT_EQ(names(select_suite("default", config)), "small mission ");
  EXPECT_EQ(names(select_suite("all", config)), "small mission batch2 ");
  EXPECT_EQ(names(select_suite("nightly", config)),
            "unknown suite \"nightly\": expected all, default, extended");
}

TEST_F(ConfigSelection, PicksSeeds) {
  const auto all = select_seeds({}, config);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, config.seeds);
  const auto some = select_seeds({"18446744073709551615", "7", "7"}, config);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(*some, (std::vector<std::uint64_t>{UINT64_MAX, 7}));
  for (const char* bad : {"-1", "0x5", "5 ", "18446744073709551616", ""}) {
    const auto refused = select_seeds({bad}, config);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.status().message(),
              "seed \"" + std::string(bad) +
                  "\": expected a whole number from 0 to 18446744073709551615");
  }
}

TEST(DeviceChoice, TakesTheGpuWhereThereIsOne) {
  const auto choice = choose_device("auto", made_gpu(), environment_of({}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->device.backend, Backend::kDevice);
  EXPECT_EQ(choice->no_gpu_reason, "");
  const auto host = choose_device("host", made_gpu(), environment_of({}));
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(host->device.backend, Backend::kHost);
}

TEST(DeviceChoice, FallsBackToTheHostWithTheReason) {
  const auto choice = choose_device("auto", unsupported("no driver"), environment_of({}));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->device.backend, Backend::kHost);
  EXPECT_EQ(choice->device.executor, nullptr);
  EXPECT_EQ(choice->no_gpu_reason, "no driver");
}

TEST(DeviceChoice, RefusesToDoWithoutAGpuThatIsAskedFor) {
  const auto required =
      choose_device("auto", unsupported("no driver"), environment_of({{"SDPA_REQUIRE_GPU", "1"}}));
  ASSERT_FALSE(required.ok());
  EXPECT_EQ(required.status().message(), "SDPA_REQUIRE_GPU=1: no driver");
  const auto device = choose_device("device", unsupported("no driver"), environment_of({}));
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().message(), "--backend device: no driver");
  EXPECT_FALSE(choose_device("host", made_gpu(), environment_of({{"SDPA_REQUIRE_GPU", "1"}})).ok());
}

TEST(DeviceChoice, RefusesAnotherWordThan0Or1AndTakesNoneForNone) {
  for (const char* word : {"yes", "2", "01", " "}) {
    const auto refused =
        choose_device("auto", made_gpu(), environment_of({{"SDPA_REQUIRE_GPU", word}}));
    ASSERT_FALSE(refused.ok()) << word;
    EXPECT_EQ(refused.status().message(), "environment variable SDPA_REQUIRE_GPU=\"" +
                                              std::string(word) + "\": expected 0 or 1");
  }
  for (const char* word : {"", "0"}) {
    EXPECT_TRUE(
        choose_device("auto", unsupported("none"), environment_of({{"SDPA_REQUIRE_GPU", word}}))
            .ok());
  }
}

TEST(DeviceChoice, NeverTakesACudaErrorForNoGpu) {
  const auto choice = choose_device(
      "auto", Status{StatusCode::kDeviceError, "cudaGetDevice: unknown error"}, environment_of({}));
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().message(), "cudaGetDevice: unknown error");
}

}  // namespace
}  // namespace fp8_sdpa::bench
