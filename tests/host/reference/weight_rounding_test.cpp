#include "reference/oracle/weight_rounding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"
#include "reference/judge/budget.hpp"
#include "tests/host/reference/cpu_vectors.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr double kWorst = 1.0 / 17.0;  // of a weight, rounded to E4M3

TEST(WeightRounding, RoundsAsTheFormatsDefinitionDoes) {
  const auto& table = decode_table(Dtype::kE4M3);
  const auto expect_same = [&](float x) {
    ASSERT_EQ(round_to_e4m3(x), table[encode_code(x, Dtype::kE4M3)]) << x;
  };
  constexpr std::uint32_t kStep = 1009;
  for (auto bits = std::uint32_t{0}; bits <= std::bit_cast<std::uint32_t>(448.0F); bits += kStep) {
    expect_same(std::bit_cast<float>(bits));
  }
  for (std::size_t code = 0; code < 0x7E; ++code) {
    const float tie = (table[code] + table[code + 1]) / 2.0F;
    for (const float x : {table[code], std::nextafter(tie, 0.0F), tie, std::nextafter(tie, 448.0F)})
      expect_same(x);
  }
}

/// What rounding does to a row of 33 equal weights, e^-below of the largest one's, all with V = 1;
/// in units of their mass.
RoundingSquares squares_of_tail(float below) {
  constexpr int kDim = 40;  // of no vector's length
  std::vector<float> scores(65, -below);
  std::vector<float> v(scores.size() * kDim, 1.0F);
  std::fill_n(scores.begin(), 32, -100.0F);
  scores[0] = 0.0F;
  const WeightRounding rounding = weight_rounding(scores, 0.0F, v, kDim);
  RoundingSquares squares = rounding.sum;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    EXPECT_NEAR(rounding.output[i], squares[i], 1e-5 * squares[i] + 1e-12);
  }
  const double mass = 33.0 * std::exp(-below);
  for (double& square : squares) square /= mass * mass;
  return squares;
}

// What the number of maxima is derived from: no weights that agree are met exactly by all of them.
TEST(WeightRounding, EqualWeightsAreFoundWithinTheMultiples) {
  constexpr int kSteps = 500;
  constexpr float kAbove = 2.0F;
  for (int i = 0; i < kSteps; ++i) {
    const RoundingSquares squares =
        squares_of_tail(kAbove + static_cast<float>(i) * std::log(2.0F) / kSteps);
    double sum = 0.0;
    double largest = 0.0;
    for (const double square : squares) {
      sum += square;
      largest = std::max(largest, square);
    }
    EXPECT_LE(std::sqrt(largest), kWorst * 1.001);
    EXPECT_GE(std::sqrt(largest) * budget_multiple(1 << 20), kWorst);
    EXPECT_GE(std::sqrt(sum / kReferenceMaxima) * budget_multiple(1), 2.5 * kWorst);
  }
}

TEST(WeightRounding, WeightsEqualToTheirMaximumStayExact) {
  constexpr int kDim = 64;
  const std::vector<float> scores(100, -3.25F);
  const std::vector<float> v(scores.size() * kDim, 1.0F);
  const WeightRounding rounding = weight_rounding(scores, -3.25F, v, kDim);
  for (const double square : rounding.output) EXPECT_EQ(square, 0.0);
  for (const double square : rounding.sum) EXPECT_EQ(square, 0.0);
}

TEST(WeightRounding, VectorsDoNotChangeBits) {
  constexpr std::size_t kKeys = 77;
  for (const int dim : {24, 64, 72, 128}) {
    const PhiloxStream words(5, 0);
    std::vector<float> scores(kKeys);
    std::vector<float> v(kKeys * static_cast<std::size_t>(dim));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      scores[i] = uniform_from_word(words.word(i), -6.0, 0.0);
    }
    for (std::size_t i = 0; i < v.size(); ++i) {
      v[i] = uniform_from_word(words.word(kKeys + i), -1.0, 1.0);
    }
    const auto plain = weight_rounding(scores, 0.0F, v, dim, Vectors::kBaseline);
    EXPECT_GT(plain.output.front(), 0.0);
    for (const Vectors vectors : vectors_of_this_cpu()) {
      const auto rounding = weight_rounding(scores, 0.0F, v, dim, vectors);
      EXPECT_EQ(rounding.output, plain.output);
      EXPECT_EQ(rounding.sum, plain.sum);
    }
  }
}

}  // namespace
}  // namespace fp8_sdpa::reference
