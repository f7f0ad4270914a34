// The same sweep on one GPU and on several: the same results, and in what share of the time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// One way of running a sweep, and how long it took, judging and start-up included.
struct SweepRun {
  int gpus = 0;
  double seconds = 0;
};

/// How two sweeps' times differ: by graph_us, point by point, as |a / b - 1|.
struct SweepDifference {
  int places = 0;
  double median = 0;
  double largest = 0;
  std::string largest_at;  ///< "<variant> at <shape>"
};

/// Compares two documents of sweep_document(). kExecutorError, in one line, unless both have the
/// same sweep points, variants and gaps, and at each sweep point all but the times is the same:
/// sizes, steps and bytes of tensors.
Result<SweepDifference> compare_sweeps(const nlohmann::json& one, const nlohmann::json& all);

/// scaling.json: both runs, the share of the time, 1 / N, and the difference of the results.
nlohmann::json scaling_document(const nlohmann::json& header, const SweepRun& one,
                                const SweepRun& all, const SweepDifference& difference);

/// The same as a line for people.
std::string scaling_line(const SweepRun& one, const SweepRun& all,
                         const SweepDifference& difference);

}  // namespace fp8_sdpa::bench
