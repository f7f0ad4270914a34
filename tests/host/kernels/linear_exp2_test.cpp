// Weights by piecewise-linear exp2: how far from 2^x, and what becomes of exponents that no half
// has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sm90/compute/softmax.cuh"

namespace fp8_sdpa::sm90 {
namespace {

double half_to_double(std::uint32_t bits) {
  return gpu::half_to_float(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)));
}

/// The first of two weights; the second is that of `other`.
double weight(float x, float other = 0.0F) {
  return half_to_double(linear_exp2_half2(x, other, fixed_point(1.0F, 0.0F)) & 0xFFFF);
}

/// Two lines are within -1.0 % and +0.5 % of 2^x, 0.44 % rms; x rounded to 1 / 64 is up to 1 / 128
/// off, evenly spread: 2^(1 / 128) is 1.0054, and ln 2 / 64 / sqrt(12) 0.31 %.
TEST(LinearExp2, AreWithinThatAndARoundedExponentOfPowersOfTwo) {
  constexpr int kSteps = 1 << 14;
  double least = 0.0;
  double most = 0.0;
  double sum = 0.0;
  double square = 0.0;
  for (int i = 0; i < kSteps; ++i) {
    const float x = -5.0F + 12.0F * static_cast<float>(i) / kSteps;  // whole binades
    const double error = weight(x) / std::exp2(static_cast<double>(x)) - 1.0;
    least = std::min(least, error);
    most = std::max(most, error);
    sum += error;
    square += error * error;
  }
  EXPECT_NEAR(least, -0.0154, 0.001);
  EXPECT_NEAR(most, 0.0104, 0.001);
  EXPECT_NEAR(sum / kSteps, 0.0, 2e-4);
  EXPECT_NEAR(std::sqrt(square / kSteps), 0.0054, 5e-4);
}

TEST(LinearExp2, TwoScoresAreTwoHalves) {
  const std::uint32_t both = linear_exp2_half2(3.0F, -2.0F, fixed_point(1.0F, 0.0F));
  EXPECT_EQ(half_to_double(both & 0xFFFF), weight(3.0F));
  EXPECT_EQ(half_to_double(both >> 16), weight(-2.0F));
}

TEST(LinearExp2, ScaleAndOffsetMakeExponents) {
  const FixedPoint to = fixed_point(0.25F, 8.0F);
  EXPECT_EQ(half_to_double(linear_exp2_half2(-20.0F, 0.0F, to) & 0xFFFF), weight(3.0F));
}

/// A device flushes subnormal factors to 0, and 0 times a masked key's -inf is a NaN.
TEST(LinearExp2, AScaleOfZeroIsNoSubnormalFactor) {
  const FixedPoint to = fixed_point(attention::score_factor(0.0F), 8.0F);
  EXPECT_TRUE(std::isnormal(to.scale));
  const float masked = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(half_to_double(linear_exp2_half2(12.0F, masked, to) & 0xFFFF), weight(8.0F));
}

TEST(LinearExp2, SmallWeightsAreZeroInE4M3) {
  constexpr double kLeastOfE4M3 = 0x1p-10;  // half the smallest code: rounds to 0
  for (const float x : {-15.0F, -17.5F, -40.0F, -48.0F, -64.0F, -1000.0F, -1e30F,
                        -std::numeric_limits<float>::infinity()}) {
    EXPECT_GE(weight(x), 0.0) << x;
    EXPECT_LT(weight(x), kLeastOfE4M3) << x;
  }
}

TEST(LinearExp2, ANaNStaysOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(weight(nan)));
  EXPECT_TRUE(std::isnan(weight(-nan)));
  EXPECT_NEAR(weight(5.0F, nan), weight(5.0F), 0.0);
  const std::uint32_t upper = linear_exp2_half2(nan, 5.0F, fixed_point(1.0F, 0.0F)) >> 16;
  // Beside it, of the same row, up to 7 units of 10 bits of a mantissa are not known.
  EXPECT_NEAR(half_to_double(upper), weight(5.0F), 7.0 / 1024 * weight(5.0F));
}

}  // namespace
}  // namespace fp8_sdpa::sm90
