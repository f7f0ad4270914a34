// How far a median of measured times can be trusted.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Ends of an interval, in the unit of its samples.
struct Interval {
  double low = 0;
  double high = 0;
};

/// How to resample.
struct BootstrapOptions {
  /// Samples that are drawn together, as they followed each other in time. 1: each on its own,
  /// right for independent samples; a repetition's length where neighbours are alike (clocks
  /// drift).
  std::size_t block = 1;
  int resamples = 1000;
  double confidence = 0.95;
  std::uint64_t seed = 0;
};

/// The medians of `resamples` series of the same length, drawn from `samples` with replacement, in
/// ascending order. The same on every machine: drawn by Philox (reference/inputs/philox.hpp).
/// kInvalidArgument where there are no samples, a NaN among them, or an option makes no sense.
Result<std::vector<double>> bootstrap_medians(const std::vector<double>& samples,
                                              const BootstrapOptions& options);

/// The percentile interval of the median: the quantiles (1 - confidence) / 2 and
/// (1 + confidence) / 2 of bootstrap_medians() (Efron and Tibshirani, "An Introduction to the
/// Bootstrap", 1993, section 13.3; blocks: section 8.6).
Result<Interval> bootstrap_median_interval(const std::vector<double>& samples,
                                           const BootstrapOptions& options);

}  // namespace fp8_sdpa::bench
