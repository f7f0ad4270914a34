// The resource gates: what the compiler's report and the variant table say about every kernel, and
// kernels planted to break each limit.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>

#include "benchmarks/report/resources.hpp"
#include "dispatch/resources.hpp"
#include "tests/kernels/planted_kernels.hpp"

namespace fp8_sdpa::bench {
namespace {

std::vector<ResourceUse> uses_of_this_build() {
  const auto report = load_ptxas_report();
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? resource_uses(*report, variants()) : std::vector<ResourceUse>{};
}

TEST(ResourceGates, EveryVariantOnEveryArchitecture) {
  const auto uses = uses_of_this_build();
  std::printf("%s", resource_table(uses).c_str());
  std::map<std::string, Family> families;
  for (const Variant& variant : variants()) families[std::string(variant.name)] = variant.family;
  std::map<std::string, std::set<std::string>> architectures;
  for (const ResourceUse& use : uses) {
    EXPECT_EQ(resource_violation(use, limits_of(families.at(use.variant))), "");
    architectures[use.variant].insert(use.arch);
    const auto fits = occupancy(use);
    if (fits.ok()) {
      EXPECT_GT(fits->blocks, 0) << use.variant << " on " << use.arch;
    }
  }
  // sm90 is compiled for sm_90a alone, and left out where that is not asked for.
  const std::set<std::string> all = architectures.begin()->second;  // a Stage C variant's
  const std::set<std::string> hopper = {"sm_90a"};
  for (const auto& [variant, family] : families) {
    if (family == Family::kSm90 && !all.contains("sm_90a")) {
      EXPECT_FALSE(architectures.contains(variant)) << variant;
      continue;
    }
    ASSERT_TRUE(architectures.contains(variant)) << variant << " has no device code";
    EXPECT_EQ(architectures.at(variant), family == Family::kSm90 ? hopper : all) << variant;
  }
}

// Blocks of one variant differ: registers of one head dim beside the threads of another say
// nothing.
TEST(ResourceGates, EachHeadDimHasItsOwnBlock) {
  const auto variant = find_variant("sm90_independent");
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  EXPECT_EQ(resources_at(**variant, 64).threads, 5 * 128);
  EXPECT_EQ(resources_at(**variant, 256).threads, 3 * 128);
  EXPECT_EQ(resources_at(**variant, 128).threads, (*variant)->resources.threads);
  int head_dims_seen = 0;
  for (const ResourceUse& use : uses_of_this_build()) {
    if (use.variant != "sm90_independent") continue;
    const bool head_dim_64 = use.kernel.find("sm90_independent_d64_") != std::string::npos;
    EXPECT_EQ(use.threads, head_dim_64 ? 5 * 128 : 3 * 128) << use.kernel;
    head_dims_seen |= head_dim_64 ? 1 : 2;
  }
  EXPECT_TRUE(head_dims_seen == 0 || head_dims_seen == 3) << head_dims_seen;  // 0: without sm_90a
}

/// The planted kernels as the gates see them, by name.
std::map<std::string, std::vector<ResourceUse>> planted_uses() {
  const auto report = load_ptxas_report(SDPA_PLANTED_REPORT);
  EXPECT_TRUE(report.ok()) << report.status().message();
  const auto planted = [](const char* name, int threads, std::size_t shared_bytes) {
    Variant variant{};
    variant.name = name;
    variant.resources = {.threads = threads, .shared_bytes = shared_bytes};
    return variant;
  };
  const Variant kernels[] = {planted("too_many_registers", 256, planted::kSharedBytes),
                             planted("too_much_shared", 256, planted::kTooManySharedBytes),
                             planted("spills", 1024, planted::kSharedBytes)};
  std::map<std::string, std::vector<ResourceUse>> by_name;
  if (!report.ok()) return by_name;
  for (const ResourceUse& use : resource_uses(*report, kernels))
    by_name[use.variant].push_back(use);
  return by_name;
}

TEST(ResourceGates, PlantedKernelsAreFound) {
  const std::map<std::string, std::string> reasons = {
      {"too_many_registers", "registers per thread"},
      {"too_much_shared", "bytes of shared memory"},
      {"spills", "registers spilled"}};
  const auto planted = planted_uses();
  for (const auto& [name, reason] : reasons) {
    ASSERT_TRUE(planted.contains(name)) << "the planted kernel " << name << " was not compiled";
    for (const ResourceUse& use : planted.at(name)) {
      const std::string violation = resource_violation(use, kLadderLimits);
      EXPECT_NE(violation.find(reason), std::string::npos)
          << name << " on " << use.arch << ": '" << violation << "'";
    }
  }
}

ResourceUse made_up() {
  return {.kernel = "k",
          .variant = "made_up",
          .arch = "sm_90a",
          .threads = 128,
          .registers = 128,
          .shared_bytes = 64 * 1024,
          .spill_bytes = 0};
}

TEST(ResourceGates, HopperStatesLimitsOfItsOwn) {
  ResourceUse use = made_up();
  use.registers = 240;
  use.shared_bytes = 227 * 1024;
  EXPECT_EQ(resource_violation(use, limits_of(Family::kSm90)), "");
  EXPECT_NE(resource_violation(use, limits_of(Family::kStageC)), "");
  use.registers = 241;
  EXPECT_EQ(resource_violation(use, limits_of(Family::kSm90)),
            "made_up on sm_90a: 241 registers per thread; 1 to 240 are allowed");
  use.registers = 240;
  use.shared_bytes += 1;
  EXPECT_EQ(resource_violation(use, limits_of(Family::kSm90)),
            "made_up on sm_90a: 232449 bytes of shared memory per block; 1 to 232448 are allowed");
  use = made_up();
  use.spill_bytes = 4;
  EXPECT_NE(resource_violation(use, limits_of(Family::kSm90)), "");
}

TEST(ResourceGates, LimitsAreInclusive) {
  EXPECT_EQ(resource_violation(made_up(), kLadderLimits), "");
  ResourceUse use = made_up();
  use.registers = 129;
  EXPECT_EQ(resource_violation(use, kLadderLimits),
            "made_up on sm_90a: 129 registers per thread; 1 to 128 are allowed");
  use = made_up();
  use.shared_bytes = 64 * 1024 + 1;
  EXPECT_EQ(resource_violation(use, kLadderLimits),
            "made_up on sm_90a: 65537 bytes of shared memory per block; 1 to 65536 are allowed");
  use.shared_bytes = 0;
  EXPECT_NE(resource_violation(use, kLadderLimits), "");
  use = made_up();
  use.spill_bytes = 4;
  EXPECT_EQ(resource_violation(use, kLadderLimits),
            "made_up on sm_90a: 4 bytes of registers spilled; 0 are allowed");
}

struct Fit {
  const char* arch;
  int threads, registers;
  std::size_t shared_bytes;
  int blocks;
  const char* limit;
};

TEST(Occupancy, IsLimitedByTheScarcestResource) {
  // Checked by hand against the occupancy calculator's rules.
  const Fit fits[] = {{"sm_90a", 128, 128, 1024, 4, "registers"},
                      {"sm_90a", 128, 32, 48 * 1024, 4, "shared"},
                      {"sm_90a", 256, 32, 1024, 8, "threads"},
                      {"sm_90a", 32, 32, 1024, 32, "blocks"},
                      {"sm_89", 256, 128, 48 * 1024, 2, "registers"},
                      {"sm_89", 256, 64, 64 * 1024, 1, "shared"},
                      {"sm_80", 128, 72, 40 * 1024, 4, "shared"},
                      {"sm_80", 160, 100, 16 * 1024, 3, "registers"}};
  for (const Fit& fit : fits) {
    ResourceUse use;
    use.arch = fit.arch;
    use.threads = fit.threads;
    use.registers = fit.registers;
    use.shared_bytes = fit.shared_bytes;
    const auto result = occupancy(use);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->blocks, fit.blocks) << fit.arch << " " << fit.threads;
    EXPECT_STREQ(result->limit, fit.limit) << fit.arch << " " << fit.threads;
    EXPECT_EQ(result->warps, fit.blocks * fit.threads / 32);
  }
  ResourceUse unknown;
  unknown.arch = "sm_70";
  unknown.threads = unknown.registers = 32;
  EXPECT_FALSE(occupancy(unknown).ok());
}

}  // namespace
}  // namespace fp8_sdpa::bench
