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

}  // namespace fp8_sdpa::bench
