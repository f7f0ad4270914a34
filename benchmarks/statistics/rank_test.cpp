#include "benchmarks/statistics/rank_test.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>

namespace fp8_sdpa::bench {
namespace {

bool has_nan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

/// P(U = u) for u = 0 .. n * m under the null hypothesis: the largest value is one of x with
/// probability n / (n + m) and then above all m of y, or one of y and then above none.
std::vector<double> null_distribution(std::size_t n, std::size_t m) {
  // rows[j]: of the current number of x and j of y
  std::vector<std::vector<double>> rows(m + 1, std::vector<double>(n * m + 1, 0.0));
  for (auto& row : rows) row[0] = 1;
  for (std::size_t i = 1; i <= n; ++i) {
    for (std::size_t j = 1; j <= m; ++j) {
      const double from_x = static_cast<double>(i) / static_cast<double>(i + j);
      // Downwards in u, because rows[j] still holds what i - 1 values of x gave.
      for (std::size_t u = i * j + 1; u-- > 0;) {
        const double with_x = u >= j ? rows[j][u - j] : 0.0;
        rows[j][u] = from_x * with_x + (1 - from_x) * rows[j - 1][u];
      }
    }
  }
  return rows[m];
}

double exact_p(double u, std::size_t n, std::size_t m) {
  const std::vector<double> density = null_distribution(n, m);
  const auto pairs = static_cast<double>(n * m);
  const auto smaller = static_cast<std::size_t>(std::min(u, pairs - u));
  const double tail = std::accumulate(
      density.begin(), density.begin() + static_cast<std::ptrdiff_t>(smaller) + 1, 0.0);
  return std::min(1.0, 2 * tail);
}

/// `ties`: the sum of t^3 - t over the groups of t equal values.
double normal_p(double u, double n, double m, double ties) {
  constexpr double kContinuity = 0.5;
  const double total = n + m;
  const double variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)));
  if (!(variance > 0)) return 1;
  const double distance = std::max(0.0, std::abs(u - n * m / 2) - kContinuity);
  return std::erfc(distance / std::sqrt(variance) / std::numbers::sqrt2);
}

}  // namespace

Result<RankTest> mann_whitney(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.empty() || y.empty()) return invalid_argument("rank test: a side is empty");
  if (has_nan(x) || has_nan(y)) return invalid_argument("rank test: a value is NaN");
  struct Value {
    double value;
    bool of_x;
  };
  std::vector<Value> all;
  for (const double v : x) all.push_back({v, true});
  for (const double v : y) all.push_back({v, false});
  std::sort(all.begin(), all.end(),
            [](const Value& a, const Value& b) { return a.value < b.value; });
  double ranks_of_x = 0;
  double ties = 0;
  for (std::size_t at = 0; at < all.size();) {
    std::size_t end = at;
    double of_x = 0;
    for (; end < all.size() && all[end].value == all[at].value; ++end) of_x += all[end].of_x;
    const auto tied = static_cast<double>(end - at);
    // Ranks at + 1 .. end share their mean.
    ranks_of_x += of_x * (static_cast<double>(at) + (tied + 1) / 2);
    ties += tied * (tied * tied - 1);
    at = end;
  }
  const auto n = static_cast<double>(x.size());
  const auto m = static_cast<double>(y.size());
  RankTest test;
  test.u = ranks_of_x - n * (n + 1) / 2;
  test.exact = ties == 0 && x.size() <= kExactRankTest && y.size() <= kExactRankTest;
  test.p = test.exact ? exact_p(test.u, x.size(), y.size()) : normal_p(test.u, n, m, ties);
  return test;
}

Result<std::vector<double>> holm(const std::vector<double>& p_values) {
  for (const double p : p_values) {
    if (!(p >= 0 && p <= 1)) {
      return invalid_argument("Holm's correction: got " + std::to_string(p) +
                              ", expected p-values in [0, 1]");
    }
  }
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto left = static_cast<double>(order.size() - i);
    largest = std::max(largest, std::min(1.0, left * p_values[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

}  // namespace fp8_sdpa::bench
