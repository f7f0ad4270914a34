#include "benchmarks/report/resources.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "dispatch/resources.hpp"

namespace fp8_sdpa::bench {
namespace {

/// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
struct Multiprocessor {
  int sm_version;
  int warps;
  int blocks;
  std::size_t shared_bytes;
};
constexpr Multiprocessor kMultiprocessors[] = {
    {80, 64, 32, 164 * 1024}, {86, 48, 16, 100 * 1024}, {87, 48, 16, 164 * 1024},
    {89, 48, 24, 100 * 1024}, {90, 64, 32, 228 * 1024},
};
constexpr int kWarpSize = 32;
constexpr int kRegisters = 65536;
constexpr int kRegistersAllocatedAtOnce = 256;      ///< per warp
constexpr std::size_t kReservedSharedBytes = 1024;  ///< per block, by the system
constexpr std::size_t kSharedAllocatedAtOnce = 128;

template <class T>
constexpr T round_up(T x, T unit) {
  return (x + unit - 1) / unit * unit;
}

/// 90 of "sm_90a"; 0 of anything else.
int sm_version_of(const std::string& arch) {
  constexpr std::string_view kPrefix = "sm_";
  int version = 0;
  if (arch.starts_with(kPrefix)) {
    std::from_chars(arch.data() + kPrefix.size(), arch.data() + arch.size(), version);
  }
  return version;
}

/// The head dim in a kernel's mangled name: "_d64_" behind the variant's name. 0: none.
int head_dim_of(const PtxasEntry& entry) {
  const std::string tag = entry.variant + "_d";
  const std::size_t at = entry.kernel.find(tag);
  int head_dim = 0;
  if (at != std::string::npos) {
    const char* const first = entry.kernel.data() + at + tag.size();
    std::from_chars(first, entry.kernel.data() + entry.kernel.size(), head_dim);
  }
  return head_dim;
}

}  // namespace

std::vector<ResourceUse> resource_uses(const PtxasReport& report,
                                       std::span<const Variant> variants) {
  std::vector<ResourceUse> uses;
  for (const PtxasEntry& entry : report.entries) {
    const auto variant = std::find_if(variants.begin(), variants.end(),
                                      [&](const Variant& v) { return v.name == entry.variant; });
    if (variant == variants.end()) continue;
    const Resources resources = resources_at(*variant, head_dim_of(entry));
    uses.push_back({.kernel = entry.kernel,
                    .variant = entry.variant,
                    .arch = entry.arch,
                    .threads = resources.threads,
                    .registers = entry.registers,
                    .shared_bytes = entry.static_smem_bytes + resources.shared_bytes,
                    .spill_bytes = entry.spill_stores + entry.spill_loads});
  }
  return uses;
}

std::string resource_violation(const ResourceUse& use, const ResourceLimits& limits) {
  const std::string who = use.variant + " on " + use.arch + ": ";
  if (use.registers <= 0 || use.registers > limits.registers) {
    return who + std::to_string(use.registers) + " registers per thread; 1 to " +
           std::to_string(limits.registers) + " are allowed";
  }
  if (use.shared_bytes == 0 || use.shared_bytes > limits.shared_bytes) {
    return who + std::to_string(use.shared_bytes) + " bytes of shared memory per block; 1 to " +
           std::to_string(limits.shared_bytes) + " are allowed";
  }
  if (use.spill_bytes != 0) {
    return who + std::to_string(use.spill_bytes) + " bytes of registers spilled; 0 are allowed";
  }
  return {};
}

Result<Occupancy> occupancy(const ResourceUse& use) {
  const int version = sm_version_of(use.arch);
  const auto* sm = std::find_if(std::begin(kMultiprocessors), std::end(kMultiprocessors),
                                [&](const Multiprocessor& m) { return m.sm_version == version; });
  if (sm == std::end(kMultiprocessors)) {
    return unsupported("the limits of " + use.arch + " are not known; known are sm_80 to sm_90");
  }
  const int warps = (use.threads + kWarpSize - 1) / kWarpSize;
  const int registers = round_up(use.registers * kWarpSize, kRegistersAllocatedAtOnce) * warps;
  const std::size_t shared =
      round_up(use.shared_bytes + kReservedSharedBytes, kSharedAllocatedAtOnce);
  Occupancy result{.max_warps = sm->warps};
  if (warps == 0 || registers == 0) return result;
  result.blocks = sm->blocks;
  result.limit = "blocks";
  const auto limit_to = [&result](int blocks, const char* what) {
    if (blocks >= result.blocks) return;
    result.blocks = blocks;
    result.limit = what;
  };
  limit_to(sm->warps / warps, "threads");
  limit_to(kRegisters / registers, "registers");
  limit_to(static_cast<int>(sm->shared_bytes / shared), "shared");
  result.warps = result.blocks * warps;
  return result;
}

std::string resource_table(std::span<const ResourceUse> uses) {
  std::string table =
      "| variant | arch | threads | registers | shared bytes | spilled | blocks / SM | occupancy | "
      "limited by |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const ResourceUse& use : uses) {
    const bool has_larger = std::any_of(uses.begin(), uses.end(), [&](const ResourceUse& other) {
      return other.variant == use.variant && other.arch == use.arch &&
             (other.registers > use.registers ||
              (other.registers == use.registers && &other < &use));
    });
    if (has_larger) continue;
    table += "| " + use.variant + " | " + use.arch + " | " + std::to_string(use.threads) + " | " +
             std::to_string(use.registers) + " | " + std::to_string(use.shared_bytes) + " | " +
             std::to_string(use.spill_bytes) + " | ";
    if (const auto fits = occupancy(use); fits.ok()) {
      char percent[16];
      std::snprintf(percent, sizeof percent, "%.1f %%", 100.0 * fits->warps / fits->max_warps);
      table += std::to_string(fits->blocks) + " | " + percent + " | " + fits->limit + " |\n";
    } else {
      table += "- | - | - |\n";
    }
  }
  return table;
}

}  // namespace fp8_sdpa::bench
