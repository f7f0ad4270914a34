// A/A: how often the comparison calls a difference where there is none, measured on a run's own
// repetitions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "benchmarks/files/perf_file.hpp"
#include "benchmarks/statistics/significance.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// What is asked of an A/A run.
struct AaOptions {
  std::string method = "events_l2_warm";
  int splits = 100;
  std::uint64_t seed = 1;
  SignificanceRule rule;
};

/// The share of comparisons with a false alarm that is still fine.
inline constexpr double kMaxFalseAlarms = 0.05;

struct AaReport {
  int cases = 0;        ///< (variant, shape) pairs of each comparison
  int repetitions = 0;  ///< of the case that has the fewest
  int comparisons = 0;
  int alarms = 0;       ///< comparisons in which any case was called faster or slower
  int test_alarms = 0;  ///< comparisons in which the test alone would have, without the floor
  /// Cases called faster or slower where the run is cut in time's order: first half, second half.
  /// Drift shows here; it is told, not judged.
  std::vector<std::string> drifted;

  double rate() const { return static_cast<double>(alarms) / comparisons; }
  bool pass() const { return rate() <= kMaxFalseAlarms; }
};

/// Cuts the repetitions of every series by a method at random in two, `splits` times, the same cut
/// for all series of equal length, and compares the halves as two runs. kInvalidArgument, in one
/// line with the file, where there is no series, or one with fewer than 2 kMinRepetitions.
Result<AaReport> compare_with_itself(const PerfFile& file, const AaOptions& options);

/// The same for a file: counts, rates, options, and of what run.
nlohmann::json to_json(const AaReport& report, const PerfFile& file, const AaOptions& options);

/// What fp8_sdpa_compare --aa prints.
std::string to_text(const AaReport& report, const PerfFile& file, const AaOptions& options);

}  // namespace fp8_sdpa::bench
