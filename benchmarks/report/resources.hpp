// What a kernel asks of a multiprocessor: limits, and how many of its blocks fit.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/files/ptxas_report.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// One kernel on one architecture, from the compiler's report and the size that the launch asks
/// for.
struct ResourceUse {
  std::string kernel;  ///< mangled
  std::string variant;
  std::string arch;              ///< such as "sm_90a"
  int threads = 0;               ///< per block
  int registers = 0;             ///< per thread
  std::size_t shared_bytes = 0;  ///< per block, static and dynamic
  std::size_t spill_bytes = 0;   ///< stores and loads
};

struct ResourceLimits {
  int registers = 0;
  std::size_t shared_bytes = 0;
};
/// Those of the ladder.
inline constexpr ResourceLimits kLadderLimits{128, 64 * 1024};
/// Those of sm90: a consumer's share of the registers (setmaxnreg), and what a block may opt in to.
inline constexpr ResourceLimits kHopperLimits{240, 227 * 1024};
/// Those of decode: a thread's most, and what a block of sm_89 may opt in to.
inline constexpr ResourceLimits kDecodeLimits{255, 99 * 1024};
constexpr const ResourceLimits& limits_of(Family family) {
  return family == Family::kSm90     ? kHopperLimits
         : family == Family::kDecode ? kDecodeLimits
                                     : kLadderLimits;
}

/// What each kernel of the report that is one of the variants' uses, in the report's order.
std::vector<ResourceUse> resource_uses(const PtxasReport& report,
                                       std::span<const Variant> variants);

/// Empty, or in one line the first limit that is not kept: registers, shared memory (which must be
/// used at all, too), spills.
std::string resource_violation(const ResourceUse& use, const ResourceLimits& limits);

/// How full a multiprocessor can get.
struct Occupancy {
  int blocks = 0;
  int warps = 0;
  int max_warps = 0;
  const char* limit =
      "";  ///< what allows no further block: "registers", "shared", "threads", "blocks"
};

/// The theoretical occupancy. kUnsupported for an architecture whose limits are not known here.
Result<Occupancy> occupancy(const ResourceUse& use);

/// All of it as a Markdown table, a line per variant and architecture (the kernel with the most
/// registers, where a variant has several).
std::string resource_table(std::span<const ResourceUse> uses);

}  // namespace fp8_sdpa::bench
