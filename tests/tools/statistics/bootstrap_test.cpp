// Bootstrap of the median, and the rule that ends a series of samples.
#include "benchmarks/statistics/bootstrap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "benchmarks/statistics/stats.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::bench {
namespace {

/// Survival times of the treated mice of Efron and Tibshirani (1993), table 2.1.
const std::vector<double> kTreatedMice = {94, 197, 16, 38, 99, 141, 23};

TEST(Bootstrap, MiceOfEfronAndTibshirani) {
  // Their table 2.2: the standard error of the median tends to 37.83.
  constexpr int kMany = 20000;
  const auto medians = bootstrap_medians(kTreatedMice, {.resamples = kMany, .seed = 1});
  ASSERT_TRUE(medians.ok());
  ASSERT_EQ(medians->size(), static_cast<std::size_t>(kMany));
  EXPECT_NEAR(summarise(*medians).std, 37.83, 0.75);
  EXPECT_TRUE(std::is_sorted(medians->begin(), medians->end()));
}

double binomial_at_least(int n, int least, double p) {
  double sum = 0;
  for (int k = least; k <= n; ++k) {
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) *
           std::pow(p, k) * std::pow(1 - p, n - k);
  }
  return sum;
}

TEST(Bootstrap, MediansHaveTheirExactDistribution) {
  // Of n = 7 values the median is at most the k-th when 4 draws or more are among the first k:
  // a binomial (Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979, section 3).
  constexpr int kMany = 20000;
  const auto medians = bootstrap_medians(kTreatedMice, {.resamples = kMany, .seed = 2});
  ASSERT_TRUE(medians.ok());
  std::vector<double> ascending = kTreatedMice;
  std::sort(ascending.begin(), ascending.end());
  for (int k = 1; k <= 7; ++k) {
    const double expected = binomial_at_least(7, 4, k / 7.0);
    const auto below = std::upper_bound(medians->begin(), medians->end(),
                                        ascending[static_cast<std::size_t>(k - 1)]) -
                       medians->begin();
    const double spread = 4 * std::sqrt(expected * (1 - expected) / kMany) + 1e-12;
    EXPECT_NEAR(static_cast<double>(below) / kMany, expected, spread) << k;
  }
}

TEST(Bootstrap, IntervalIsThatOfTheExactQuantiles) {
  // P(M <= 16) = 0.010, P(M <= 23) = 0.120: the 2.5 % quantile is the second value; and 141 by
  // symmetry, since P(M <= 99) = 0.880, P(M <= 141) = 0.990.
  const auto interval = bootstrap_median_interval(kTreatedMice, {.resamples = 20000, .seed = 3});
  ASSERT_TRUE(interval.ok());
  EXPECT_EQ(interval->low, 23);
  EXPECT_EQ(interval->high, 141);
}

/// Whether the interval of samples drawn under `seed` holds the true median, 0.5.
std::vector<double> uniform(std::size_t count, std::uint64_t seed) {
  const reference::PhiloxStream stream(seed, 0);
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(stream.word(i) / 4294967296.0);
  return out;
}

TEST(Bootstrap, CoversTheTrueMedianAsOftenAsItSays) {
  constexpr int kTrials = 400;
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto interval =
        bootstrap_median_interval(uniform(101, static_cast<std::uint64_t>(trial)),
                                  {.resamples = 400, .confidence = 0.9, .seed = 7});
    ASSERT_TRUE(interval.ok());
    covered += interval->low <= 0.5 && 0.5 <= interval->high;
  }
  EXPECT_NEAR(covered / static_cast<double>(kTrials), 0.9, 4 * std::sqrt(0.09 / kTrials));
}

TEST(Bootstrap, BlocksKeepNeighboursTogether) {
  // A slow drift: 20 steps of 25 equal samples. Drawn one by one they look like 500 witnesses; they
  // are 20.
  std::vector<double> steps;
  for (const double level : uniform(20, 11)) steps.insert(steps.end(), 25, level);
  const auto alone = bootstrap_median_interval(steps, {.seed = 1});
  const auto together = bootstrap_median_interval(steps, {.block = 25, .seed = 1});
  ASSERT_TRUE(alone.ok() && together.ok());
  EXPECT_GT(together->high - together->low, 2 * (alone->high - alone->low));
}

TEST(Bootstrap, TheSeedMakesIt) {
  const auto samples = uniform(50, 1);
  const auto one = bootstrap_medians(samples, {.seed = 4});
  EXPECT_EQ(*one, *bootstrap_medians(samples, {.seed = 4}));
  EXPECT_NE(*one, *bootstrap_medians(samples, {.seed = 5}));
}

TEST(Bootstrap, StandsOnOneSampleAndOnTies) {
  const auto one = bootstrap_median_interval({7}, {});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->low, 7);
  EXPECT_EQ(one->high, 7);
  const auto flat = bootstrap_median_interval(std::vector<double>(10, 3.0), {.block = 100});
  ASSERT_TRUE(flat.ok());
  EXPECT_EQ(flat->low, 3);
  EXPECT_EQ(flat->high, 3);
}

TEST(Bootstrap, RefusesWhatMakesNoSense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(bootstrap_medians({}, {}).status().message(), "bootstrap: no samples");
  EXPECT_EQ(bootstrap_medians({1, nan}, {}).status().message(), "bootstrap: a sample is NaN");
  EXPECT_FALSE(bootstrap_medians({1}, {.block = 0}).ok());
  EXPECT_FALSE(bootstrap_medians({1}, {.resamples = 0}).ok());
  EXPECT_FALSE(bootstrap_median_interval({1}, {.confidence = 1}).ok());
}

TEST(RelativeStandardError, IsThatOfTheMean) {
  // std = sqrt(500 / 3), n = 4, mean = 25
  EXPECT_DOUBLE_EQ(relative_standard_error({10, 20, 30, 40}), std::sqrt(500.0 / 3) / 2 / 25);
  EXPECT_EQ(relative_standard_error({5, 5, 5}), 0);
  EXPECT_TRUE(std::isnan(relative_standard_error({5})));
  EXPECT_TRUE(std::isnan(relative_standard_error({})));
  EXPECT_TRUE(std::isnan(relative_standard_error({1, std::nan("")})));
}

TEST(StoppingRule, StopsBetweenItsBoundsOnceQuiet) {
  const StoppingRule rule = {.min_samples = 3, .max_samples = 5, .target = 0.01};
  EXPECT_FALSE(rule.enough({1, 1})) << "quiet, but too few";
  EXPECT_TRUE(rule.enough({1, 1, 1}));
  EXPECT_FALSE(rule.enough({1, 2, 3, 4})) << "not quiet yet";
  EXPECT_TRUE(rule.enough({1, 2, 3, 4, 5})) << "as many as allowed";
  EXPECT_FALSE(rule.enough({1, 1, std::nan("")})) << "nothing is known of a NaN's spread";
  // More samples of the same spread bring it down: 1 and 3 need (1 / 2)^2 / 0.1^2 = 25 or so.
  const StoppingRule loose = {.min_samples = 2, .max_samples = 1000, .target = 0.1};
  std::vector<double> samples;
  while (!loose.enough(samples)) samples.push_back(samples.size() % 2 == 0 ? 1 : 3);
  EXPECT_NEAR(static_cast<double>(samples.size()), 25, 2);
}

}  // namespace
}  // namespace fp8_sdpa::bench
