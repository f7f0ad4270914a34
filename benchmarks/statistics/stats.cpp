#include "benchmarks/statistics/stats.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fp8_sdpa::bench {

double quantile(const std::vector<double>& ascending, double q) {
  if (ascending.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double position = q * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double weight = position - static_cast<double>(below);
  return ascending[below] + weight * (ascending[above] - ascending[below]);
}

Summary summarise(std::vector<double> samples) {
  // Sorting needs an order, and NaN has none.
  const bool orderly = !samples.empty() && std::none_of(samples.begin(), samples.end(),
                                                        [](double x) { return std::isnan(x); });
  if (!orderly) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan, nan, nan, nan};
  }
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  // Two passes: the one-pass formula cancels when the spread is far below the mean.
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return {quantile(samples, 0.5), quantile(samples, 0.9), mean,
          samples.size() > 1 ? std::sqrt(squares / (count - 1)) : 0.0, samples.front()};
}

double relative_standard_error(const std::vector<double>& samples) {
  if (samples.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const Summary summary = summarise(samples);
  return summary.std / std::sqrt(static_cast<double>(samples.size())) / std::abs(summary.mean);
}

bool StoppingRule::enough(const std::vector<double>& samples) const {
  if (samples.size() >= max_samples) return true;
  return samples.size() >= min_samples && relative_standard_error(samples) <= target;
}

}  // namespace fp8_sdpa::bench
