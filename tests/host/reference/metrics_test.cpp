#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/judge/gates.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr double kBad = 0.06;

/// 1 batch, 2 heads, 2 rows, 2 dims.
Shape tiny() {
  Shape shape;
  shape.batch = 1;
  shape.heads_q = shape.heads_kv = 2;
  shape.seq_q = shape.seq_kv = 2;
  shape.head_dim = 2;
  return shape;
}

const std::vector<float> kWant = {1, 0, 0, 0, 3, 4, 0, 0};

TEST(Metrics, EqualTensorsHaveNoError) {
  const Metrics metrics = compare(kWant, kWant, tiny(), kBad);
  EXPECT_EQ(metrics.max_abs_err, 0.0);
  EXPECT_EQ(metrics.mean_abs_err, 0.0);
  EXPECT_EQ(metrics.pct_bad, 0.0);
  EXPECT_EQ(metrics.rel_l2, 0.0);
  EXPECT_EQ(metrics.rmse, 0.0);
  EXPECT_DOUBLE_EQ(metrics.cosine, 1.0);
  EXPECT_EQ(metrics.non_finite, 0);
}

TEST(Metrics, AreWhatTheirNamesSay) {
  std::vector<float> got = kWant;
  got[1] = 0.5F;    // head 0: ||error|| 0.5 over ||want|| 1
  got[7] = -0.05F;  // head 1: 0.05 over 5
  const Metrics metrics = compare(got, kWant, tiny(), kBad);
  EXPECT_DOUBLE_EQ(metrics.max_abs_err, 0.5);
  EXPECT_NEAR(metrics.mean_abs_err, 0.55 / 8, 1e-9);
  EXPECT_NEAR(metrics.max_rel_err, 500.0, 1e-6) << "the denominator is floored at 1e-3";
  EXPECT_DOUBLE_EQ(metrics.pct_bad, 12.5);
  EXPECT_DOUBLE_EQ(metrics.rel_l2, 0.5) << "the worst head, not the whole";
  EXPECT_NEAR(metrics.rmse, std::sqrt(0.2525 / 8), 1e-7);
  EXPECT_NEAR(metrics.rel_rmse, std::sqrt(0.2525 / 26), 1e-7);
  EXPECT_NEAR(metrics.rel_l1, 0.55 / 8, 1e-7);
  EXPECT_NEAR(metrics.cosine, 26 / std::sqrt(26 * 26.2525), 1e-7);
  EXPECT_EQ(metrics.worst.head, 0);
  EXPECT_EQ(metrics.worst.row, 0);
  EXPECT_EQ(metrics.worst.dim, 1);
  EXPECT_EQ(metrics.worst.got, 0.5);
  EXPECT_EQ(metrics.worst.want, 0.0);
}

TEST(Metrics, WorstHeadIsByRelativeError) {
  std::vector<float> got = kWant;
  got[1] = 0.5F;
  got[5] = 5.0F;  // a larger error, in a larger head: 1 over 5
  const Metrics metrics = compare(got, kWant, tiny(), kBad);
  EXPECT_DOUBLE_EQ(metrics.max_abs_err, 1.0);
  EXPECT_EQ(metrics.worst.head, 1);
  EXPECT_EQ(metrics.worst.dim, 1);
  EXPECT_DOUBLE_EQ(metrics.rel_l2, 0.5);
  EXPECT_EQ(metrics.worst_head.head, 0);
}

TEST(Metrics, NothingNonFinitePasses) {
  for (const float poison : {std::nanf(""), INFINITY, -INFINITY}) {
    for (std::size_t place = 0; place < kWant.size(); ++place) {
      std::vector<float> got = kWant;
      got[place] = poison;
      const Metrics metrics = compare(got, kWant, tiny(), kBad);
      EXPECT_EQ(metrics.max_abs_err, INFINITY);
      EXPECT_EQ(metrics.mean_abs_err, INFINITY);
      EXPECT_EQ(metrics.rel_l2, INFINITY);
      EXPECT_EQ(metrics.pct_bad, 100.0);
      EXPECT_EQ(metrics.non_finite, 1);
      EXPECT_EQ(metrics.worst.head * 4 + metrics.worst.row * 2 + metrics.worst.dim,
                static_cast<std::int64_t>(place));
    }
  }
}

TEST(Metrics, NanMustNotBeLaundered) {
  std::vector<float> want = kWant;
  want[3] = std::nanf("");
  EXPECT_EQ(compare(want, want, tiny(), kBad).max_abs_err, 0.0) << "both NaN: right";
  EXPECT_EQ(compare(want, want, tiny(), kBad).non_finite, 0);
  EXPECT_EQ(compare(kWant, want, tiny(), kBad).max_abs_err, INFINITY) << "the NaN was lost";
}

TEST(Metrics, AnEmptyHeadMustBeZero) {
  const std::vector<float> zeros(8, 0.0F);
  EXPECT_EQ(compare(zeros, zeros, tiny(), kBad).rel_l2, 0.0);
  std::vector<float> got = zeros;
  got[0] = 1e-6F;
  EXPECT_EQ(compare(got, zeros, tiny(), kBad).rel_l2, INFINITY);
}

TEST(Metrics, AWrongNumberOfElementsIsInfinitelyWrong) {
  EXPECT_EQ(compare({}, {}, tiny(), kBad).max_abs_err, INFINITY);
  EXPECT_EQ(compare(std::vector<float>(7), kWant, tiny(), kBad).rel_l2, INFINITY);
  EXPECT_EQ(compare(kWant, std::vector<float>(9), tiny(), kBad).pct_bad, 100.0);
}

TEST(Metrics, LseAgreesOnRowsWithoutKeys) {
  const std::vector<float> want = {-INFINITY, 1.0F, 2.0F, 3.0F};
  EXPECT_EQ(compare_lse(want, want, tiny()).max_abs_err, 0.0);
  std::vector<float> got = want;
  got[0] = -1e30F;
  EXPECT_EQ(compare_lse(got, want, tiny()).max_abs_err, INFINITY) << "finite on an empty row";
  got = want;
  got[1] = -INFINITY;
  EXPECT_EQ(compare_lse(got, want, tiny()).max_abs_err, INFINITY);
  got = want;
  got[2] = 2.25F;
  const Metrics metrics = compare_lse(got, want, tiny());
  EXPECT_EQ(metrics.max_abs_err, 0.25);
  EXPECT_EQ(metrics.worst.head, 1);
  EXPECT_EQ(metrics.worst.row, 0);
}

}  // namespace
}  // namespace fp8_sdpa::reference
