// Summaries of timings.
#include "benchmarks/statistics/stats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace fp8_sdpa::bench {
namespace {

TEST(Stats, InterpolatesLinearlyBetweenRanks) {
  // numpy.percentile([10, 20, 30, 40], [50, 90]) = [25, 37]
  const std::vector<double> ascending = {10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(quantile(ascending, 0.5), 25);
  EXPECT_DOUBLE_EQ(quantile(ascending, 0.9), 37);
  EXPECT_DOUBLE_EQ(quantile(ascending, 0.0), 10);
  EXPECT_DOUBLE_EQ(quantile(ascending, 1.0), 40);
}

TEST(Stats, SummarisesSamplesInAnyOrder) {
  const Summary summary = summarise({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(summary.p50, 25);
  EXPECT_DOUBLE_EQ(summary.p90, 37);
  EXPECT_DOUBLE_EQ(summary.mean, 25);
  EXPECT_DOUBLE_EQ(summary.min, 10);
  EXPECT_DOUBLE_EQ(summary.std, std::sqrt(500.0 / 3));  // divided by n - 1
}

TEST(Stats, StandsOnOneSample) {
  const Summary summary = summarise({7});
  EXPECT_EQ(summary.p50, 7);
  EXPECT_EQ(summary.p90, 7);
  EXPECT_EQ(summary.mean, 7);
  EXPECT_EQ(summary.std, 0);
  EXPECT_EQ(summary.min, 7);
}

TEST(Stats, KeepsASmallSpreadOnALargeMean) {
  const Summary summary = summarise({1e9, 1e9 + 1, 1e9 + 2});
  EXPECT_DOUBLE_EQ(summary.std, 1);
}

TEST(Stats, SaysNothingOfNoSamplesOrNan) {
  EXPECT_TRUE(std::isnan(summarise({}).p50));
  const Summary summary = summarise({1, std::numeric_limits<double>::quiet_NaN(), 2});
  for (const double field : {summary.p50, summary.p90, summary.mean, summary.std, summary.min}) {
    EXPECT_TRUE(std::isnan(field));
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
