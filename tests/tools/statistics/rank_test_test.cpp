// The rank test and Holm's correction, against published examples and what must hold of them.
#include "benchmarks/statistics/rank_test.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RankTest test_of(const std::vector<double>& x, const std::vector<double>& y) {
  const auto test = mann_whitney(x, y);
  EXPECT_TRUE(test.ok()) << test.status().message();
  return test.ok() ? *test : RankTest{};
}

TEST(MannWhitney, PermeabilityOfHollanderAndWolfe) {
  // Hollander and Wolfe, "Nonparametric Statistical Methods" (1973), p. 69: W = 35 and a one-sided
  // exact p of 0.1272 (also the example of R's wilcox.test).
  const std::vector<double> term = {0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46};
  const std::vector<double> early = {1.15, 0.88, 0.90, 0.74, 1.21};
  const RankTest test = test_of(term, early);
  EXPECT_EQ(test.u, 35);
  EXPECT_TRUE(test.exact);
  EXPECT_NEAR(test.p, 2 * 0.1272, 1e-4);
}

TEST(MannWhitney, AgesOfDiabetics) {
  // The worked example of scipy.stats.mannwhitneyu: U = 17, p = 0.1111.
  const RankTest test = test_of({19, 22, 16, 29, 24}, {20, 11, 17, 12});
  EXPECT_EQ(test.u, 17);
  EXPECT_NEAR(test.p, 14.0 / 126, 1e-12);
}

TEST(MannWhitney, TailsOfMannAndWhitneysTable) {
  // Table I of Mann and Whitney (1947), P(U <= u): n = m = 3 gives .05, .10, .20, .35, .50; and
  // n = 4, m = 5 begins .008, .016, .032.
  const std::vector<double> three = {0.05, 0.10, 0.20, 0.35, 0.50};
  // x below all of y but for u inversions: y is 1, 2, 3 and x is placed between.
  const std::vector<std::vector<double>> placed = {
      {-3, -2, -1}, {-3, -2, 1.5}, {-3, -2, 2.5}, {-3, -2, 3.5}, {-3, 1.5, 3.5}};
  for (std::size_t u = 0; u < three.size(); ++u) {
    const RankTest test = test_of(placed[u], {1, 2, 3});
    EXPECT_EQ(test.u, static_cast<double>(u));
    EXPECT_NEAR(test.p, 2 * three[u], 1e-12);
  }
  EXPECT_NEAR(test_of({1, 2, 3, 4}, {5, 6, 7, 8, 9}).p, 2.0 / 126, 1e-12);
  EXPECT_NEAR(test_of({1, 2, 3, 5}, {4, 6, 7, 8, 9}).p, 4.0 / 126, 1e-12);
  EXPECT_NEAR(test_of({1, 2, 3, 6}, {4, 5, 7, 8, 9}).p, 8.0 / 126, 1e-12);
}

TEST(MannWhitney, CorrectsForTiesAndContinuity) {
  // By hand: ranks 1, 2.5, 2.5 | 4, 5.5, 5.5, so U = 0. Two groups of two: the sum of t^3 - t is
  // 12, the variance 9/12 * (7 - 12/30) = 4.95, z = (4.5 - 0.5) / sqrt(4.95).
  const RankTest test = test_of({1, 2, 2}, {3, 4, 4});
  EXPECT_EQ(test.u, 0);
  EXPECT_FALSE(test.exact);
  EXPECT_NEAR(test.p, std::erfc(4 / std::sqrt(4.95) / std::sqrt(2.0)), 1e-12);
  // A tie across the sides is half an inversion.
  EXPECT_EQ(test_of({1, 2}, {2, 3}).u, 0.5);
}

TEST(MannWhitney, IsSymmetricAndKnowsRanksOnly) {
  const std::vector<double> x = {3, 1, 4, 1.5, 9};
  const std::vector<double> y = {2, 6, 5, 3.5, 8, 7};
  const RankTest forth = test_of(x, y);
  const RankTest back = test_of(y, x);
  EXPECT_EQ(forth.u + back.u, 30);
  EXPECT_DOUBLE_EQ(forth.p, back.p);
  std::vector<double> shuffled = {9, 4, 3, 1.5, 1};
  std::vector<double> stretched;
  for (const double v : y) stretched.push_back(std::exp(v));
  for (double& v : shuffled) v = std::exp(v);
  EXPECT_DOUBLE_EQ(test_of(shuffled, stretched).p, forth.p);
}

/// Every way of choosing `n` of `n + m` ranks, told to `use` as x and y.
template <class Use>
void for_each_split(int n, int m, const Use& use) {
  for (unsigned chosen = 0; chosen < 1U << (n + m); ++chosen) {
    std::vector<double> x;
    std::vector<double> y;
    for (int rank = 0; rank < n + m; ++rank) ((chosen >> rank & 1U) != 0 ? x : y).push_back(rank);
    if (static_cast<int>(x.size()) == n) use(x, y);
  }
}

TEST(MannWhitney, ExactPIsTheShareOfSplitsAsExtreme) {
  // All 792 splits are equally likely under the null: p must be the share of those with a p as
  // small, whatever the split.
  std::map<double, int> counts;
  int splits = 0;
  for_each_split(5, 7, [&](const std::vector<double>& x, const std::vector<double>& y) {
    ++splits;
    ++counts[std::round(test_of(x, y).p * 1e9) / 1e9];
  });
  ASSERT_EQ(splits, 792);
  int as_extreme = 0;
  for (const auto& [p, count] : counts) {
    as_extreme += count;
    EXPECT_NEAR(p, as_extreme / 792.0, 1e-8);
  }
}

TEST(MannWhitney, NormalPIsUniformUnderTheNull) {
  constexpr int kTrials = 4000;
  constexpr std::size_t kEach = 25;  // past the exact distribution's reach
  const reference::PhiloxStream stream(5, 0);
  std::vector<double> p_values;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (std::size_t i = 0; i < 2 * kEach; ++i) {
      values.push_back(stream.word(static_cast<std::uint64_t>(trial) * 2 * kEach + i));
    }
    p_values.push_back(
        test_of({values.begin(), values.begin() + kEach}, {values.begin() + kEach, values.end()})
            .p);
  }
  for (const double alpha : {0.01, 0.05, 0.25, 0.5, 0.9}) {
    const auto below =
        std::count_if(p_values.begin(), p_values.end(), [&](double p) { return p <= alpha; });
    // Four standard deviations of a binomial share.
    const double spread = 4 * std::sqrt(alpha * (1 - alpha) / kTrials);
    EXPECT_NEAR(static_cast<double>(below) / kTrials, alpha, spread) << alpha;
  }
}

TEST(MannWhitney, ExactAndNormalMeet) {
  std::vector<double> x;
  std::vector<double> y;
  for (int i = 0; i < 20; ++i) {
    x.push_back(i);
    y.push_back(i + 4.5);
  }
  const RankTest exact = test_of(x, y);
  ASSERT_TRUE(exact.exact);
  // A tie at the far end of y, above all of x, leaves U and the exact test's reach.
  y[19] = y[18];
  const RankTest normal = test_of(x, y);
  ASSERT_FALSE(normal.exact);
  EXPECT_EQ(normal.u, exact.u);
  EXPECT_NEAR(normal.p / exact.p, 1, 0.05);
}

TEST(MannWhitney, StandsOnTiesAndSingleSamples) {
  const std::vector<double> flat(12, 7.0);
  EXPECT_EQ(test_of(flat, flat).p, 1);
  EXPECT_EQ(test_of({1}, {2}).p, 1);
  EXPECT_EQ(test_of({2}, {2}).p, 1);
  const double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_LT(test_of({1, 2, 3, 4, 5}, std::vector<double>(5, kInfinity)).p, 0.05);
}

TEST(MannWhitney, RefusesNanAndNothing) {
  EXPECT_EQ(mann_whitney({1, kNan}, {2}).status().message(), "rank test: a value is NaN");
  EXPECT_EQ(mann_whitney({1}, {kNan}).status().message(), "rank test: a value is NaN");
  EXPECT_EQ(mann_whitney({}, {2}).status().message(), "rank test: a side is empty");
  EXPECT_EQ(mann_whitney({1}, {}).status().message(), "rank test: a side is empty");
}

TEST(Holm, StepsDown) {
  // By hand: sorted .005 * 4, .01 * 3, .03 * 2, .04 * 1, each at least the one before.
  const auto adjusted = holm({0.01, 0.04, 0.03, 0.005});
  ASSERT_TRUE(adjusted.ok());
  const std::vector<double> expected = {0.03, 0.06, 0.06, 0.02};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_DOUBLE_EQ((*adjusted)[i], expected[i]);
}

TEST(Holm, LiesBetweenPAndBonferroni) {
  const std::vector<double> p = {0.2, 0.001, 0.9, 0.001, 0.04, 0};
  const auto adjusted = holm(p);
  ASSERT_TRUE(adjusted.ok());
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_GE((*adjusted)[i], p[i]);
    EXPECT_LE((*adjusted)[i], std::min(1.0, p[i] * static_cast<double>(p.size())));
    for (std::size_t j = 0; j < p.size(); ++j) {
      if (p[i] <= p[j]) {
        EXPECT_LE((*adjusted)[i], (*adjusted)[j]);
      }
    }
  }
}

TEST(Holm, StandsOnOneAndNone) {
  EXPECT_EQ(*holm({0.04}), std::vector<double>{0.04});
  EXPECT_TRUE(holm({})->empty());
  EXPECT_EQ(*holm({1, 1}), (std::vector<double>{1, 1}));
}

TEST(Holm, RefusesWhatIsNoProbability) {
  for (const double odd : {kNan, -0.1, 1.1}) {
    const auto adjusted = holm({0.5, odd});
    ASSERT_FALSE(adjusted.ok());
    EXPECT_NE(adjusted.status().message().find("expected p-values in [0, 1]"), std::string::npos);
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
