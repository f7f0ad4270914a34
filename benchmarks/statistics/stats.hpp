// What is reported of a series of timings.
#pragma once

#include <vector>

namespace fp8_sdpa::bench {

/// Statistics of one series; every field has the unit of its samples.
struct Summary {
  double p50 = 0;
  double p90 = 0;
  double mean = 0;
  double std = 0;  ///< of the sample: divided by n - 1, and 0 for a single value
  double min = 0;
};

/// The quantile `q` in [0, 1] of ascending samples, by linear interpolation between the two nearest
/// ranks: the value at position q * (n - 1) (definition 7 of Hyndman and Fan, "Sample Quantiles in
/// Statistical Packages", 1996; numpy's default). NaN where there are no samples.
double quantile(const std::vector<double>& ascending, double q);

/// Summarises samples in any order. Every field is NaN where there are none, or where one is NaN.
Summary summarise(std::vector<double> samples);

/// The standard error of the mean, s / sqrt(n), as a share of the mean. NaN of fewer than two
/// samples, which say nothing of their spread, or where one is NaN.
double relative_standard_error(const std::vector<double>& samples);

/// When to stop sampling.
struct StoppingRule {
  std::size_t min_samples = 0;
  std::size_t max_samples = 0;
  double target = 0;  ///< relative standard error

  /// Not before min_samples, at max_samples whatever they are, and in between once their relative
  /// standard error has come down to the target.
  bool enough(const std::vector<double>& samples) const;
};

}  // namespace fp8_sdpa::bench
