#include "benchmarks/compare/comparable.hpp"

#include <cmath>
#include <string>

#include "benchmarks/command/text.hpp"
#include "benchmarks/statistics/significance.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::one_line;

std::string name_of(const PerfSeries& series) {
  return series.variant + " on " + series.shape + " by " + series.method;
}

Status check_repetitions(const PerfFile& file, const PerfSeries& series) {
  if (series.repetitions.size() >= kMinRepetitions) return {};
  return refused(file, format("%s has %zu repetitions, expected at least %zu%s",
                              name_of(series).c_str(), series.repetitions.size(), kMinRepetitions,
                              file.of_google_benchmark ? " (--benchmark_repetitions=9)" : ""));
}

}  // namespace

Status refused(const PerfFile& file, const std::string& finding) {
  return invalid_argument(reference::one_line(file.path) + ": " + finding);
}

Status check_measurement(const PerfFile& old_file, const PerfFile& new_file,
                         const PerfSeries& old_series, const PerfSeries& new_series) {
  if (Status s = check_repetitions(old_file, old_series); !s.ok()) return s;
  if (Status s = check_repetitions(new_file, new_series); !s.ok()) return s;
  if (old_file.path == new_file.path && !(old_series.interleaved && new_series.interleaved)) {
    return refused(old_file, name_of(old_series) + " and " + new_series.variant +
                                 " were not measured in turns, expected interleaved samples");
  }
  const auto old_clock = sm_clock_of(old_series);
  const auto new_clock = sm_clock_of(new_series);
  if (old_clock && new_clock && std::abs(*new_clock / *old_clock - 1) > kClockTolerance) {
    return refused(new_file, format("%s ran at a median SM clock of %.0f MHz, expected within %.0f "
                                    "%% of %.0f MHz as in %s",
                                    name_of(new_series).c_str(), *new_clock, 100 * kClockTolerance,
                                    *old_clock, one_line(old_file.path).c_str()));
  }
  return {};
}

}  // namespace fp8_sdpa::bench
