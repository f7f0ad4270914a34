// Whether the measurements behind two series can be compared at all.
#pragma once

#include <string>

#include "benchmarks/files/perf_file.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Median SM clocks further apart than this share of the old one are two different machines. As
/// the floor of a verdict (significance.hpp): what clocks alone can do stays below what counts.
inline constexpr double kClockTolerance = 0.02;

/// A file that cannot be used, and why, in one line.
Status refused(const PerfFile& file, const std::string& finding);

/// Refuses, in one line with the file, the variant and the shape: fewer than kMinRepetitions;
/// variants of one file that were not interleaved; clocks further apart than kClockTolerance,
/// where both are known.
Status check_measurement(const PerfFile& old_file, const PerfFile& new_file,
                         const PerfSeries& old_series, const PerfSeries& new_series);

}  // namespace fp8_sdpa::bench
