// The phases of one launch, warp by warp, from the log that a traced kernel writes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "attention/phase_log.hpp"
#include "benchmarks/measure/workload.hpp"
#include "fp8_sdpa/status.hpp"
#include "traced/traced.hpp"

namespace fp8_sdpa::bench {

/// A warp's stay in a phase, in cycles of its multiprocessor. `start` counts from the
/// multiprocessor's first mark.
struct PhaseSpan {
  attention::Phase phase;
  int block, warp, multiprocessor;
  std::uint32_t tile;
  std::uint64_t start, cycles;
};

/// One launch of a traced variant.
struct Timeline {
  std::string variant;
  int blocks = 0;
  int warps = 0;                 ///< per block
  std::vector<PhaseSpan> spans;  ///< by block, warp and time
};

/// A phase's share of a launch, summed over warps.
struct PhaseTotal {
  attention::Phase phase;
  std::int64_t spans = 0;
  std::uint64_t cycles = 0;
};

/// Launches `variant` on the workload: a few times to warm up, then once logged. The output must be
/// `expected`, that of the variant without a log. kExecutorError otherwise, and where a log is not
/// whole.
Result<Timeline> take_timeline(const traced::TracedVariant& variant, const Workload& workload,
                               const std::vector<std::uint16_t>& expected);

/// The spans that marks make: blocks x warps lists of `per_warp` marks, each ended by kEnd.
/// kExecutorError, naming block and warp, where a list has no end or its time runs backwards.
Result<Timeline> make_timeline(const std::string& variant, int blocks, int warps, int per_warp,
                               const std::vector<attention::PhaseMark>& marks);

/// Phases in the order of their marks' values; those that did not happen are left out.
std::vector<PhaseTotal> totals(const Timeline& timeline);

/// Chrome's Trace Event Format (chrome://tracing, Perfetto) of the first `blocks` blocks: a process
/// per multiprocessor, a thread per warp. The viewer's nanosecond is one cycle.
nlohmann::json chrome_trace(const Timeline& timeline, int blocks);

/// A Markdown table of totals(): cycles per warp, share, cycles per span.
std::string phase_table(const Timeline& timeline);

}  // namespace fp8_sdpa::bench
