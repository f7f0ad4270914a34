#include "reference/formats/quantise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::reference {
namespace {

class Quantise : public testing::TestWithParam<Dtype> {};

TEST_P(Quantise, EachHeadHasItsOwnScale) {
  const std::vector<float> values = {1.0F, -2.0F, 0.5F, 100.0F, 3.0F, -50.0F};
  const QuantisedTensor tensor = quantise(values, 2, 3, GetParam());
  ASSERT_EQ(tensor.descales.size(), 2U);
  EXPECT_EQ(tensor.descales[0], 2.0F / max_finite(GetParam()));
  EXPECT_EQ(tensor.descales[1], 100.0F / max_finite(GetParam()));
  const std::vector<float> back = dequantise(tensor);
  EXPECT_FLOAT_EQ(back[1], -2.0F) << "the largest magnitude is the largest code";
  EXPECT_FLOAT_EQ(back[3], 100.0F);
}

TEST_P(Quantise, ErrorStaysWithinHalfAStep) {
  const PhiloxStream stream(5, 0);
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = normal_from_word(stream.word(i), 0.0, 3.0);
  }
  const std::vector<float> back = dequantise(quantise(values, 4, 1024, GetParam()));
  const float relative = GetParam() == Dtype::kE4M3 ? 0x1p-4F : 0x1p-3F;
  double squared_error = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Half a step of the smallest subnormal code, for values near zero.
    const float floor =
        20.0F / max_finite(GetParam()) * (GetParam() == Dtype::kE4M3 ? 0x1p-10F : 0x1p-17F);
    EXPECT_LE(std::fabs(back[i] - values[i]), relative * std::fabs(values[i]) + floor) << i;
    squared_error += (back[i] - values[i]) * (back[i] - values[i]);
  }
  EXPECT_GT(squared_error, 0.0) << "nothing was rounded";
}

TEST_P(Quantise, AllZerosHaveScaleOne) {
  const QuantisedTensor tensor = quantise({0.0F, -0.0F}, 1, 2, GetParam());
  EXPECT_EQ(tensor.descales[0], 1.0F);
  EXPECT_EQ(tensor.codes[0], 0x00);
  EXPECT_EQ(tensor.codes[1], 0x80);
}

TEST_P(Quantise, NanStaysAndDoesNotScale) {
  const QuantisedTensor tensor = quantise({std::nanf(""), 2.0F}, 1, 2, GetParam());
  EXPECT_EQ(tensor.descales[0], 2.0F / max_finite(GetParam()));
  EXPECT_TRUE(std::isnan(dequantise(tensor)[0]));
  EXPECT_EQ(tensor.saturated_infinities, 0);
}

TEST_P(Quantise, InfinitiesSaturateAndAreCounted) {
  const std::vector<float> values = {INFINITY, -INFINITY, 3.0F, INFINITY};
  const QuantisedTensor tensor = quantise(values, 2, 2, GetParam());
  EXPECT_EQ(tensor.saturated_infinities, 3);
  EXPECT_EQ(tensor.descales[0], 1.0F) << "no finite value but none";
  EXPECT_EQ(tensor.descales[1], 3.0F / max_finite(GetParam()));
  const std::vector<float> back = dequantise(tensor);
  EXPECT_EQ(back[0], max_finite(GetParam()));
  EXPECT_EQ(back[1], -max_finite(GetParam()));
  EXPECT_FLOAT_EQ(back[3], 3.0F);
  const std::vector<float> finite = saturate_infinities(values, tensor);
  EXPECT_EQ(finite, (std::vector<float>{back[0], back[1], 3.0F, back[3]}));
}

TEST_P(Quantise, AnAmaxWhoseScaleUnderflowsGivesNoNan) {
  const QuantisedTensor tensor = quantise({1e-45F, 0.0F}, 1, 2, GetParam());
  EXPECT_EQ(tensor.descales[0], 1.0F);
  EXPECT_EQ(dequantise(tensor)[0], 0.0F);
}

// Two heads of three rows of two elements, in blocks of two rows: the last block of each has one.
// Beside a row of 1000, which is a code, 1e-3 would be zero.
TEST(Quantised, ABlockEndsWithItsHead) {
  const std::vector<float> values = {1e-3F, 2e-3F, 1e-3F, -2e-3F, 1000.0F, 0.0F,
                                     1e-3F, 2e-3F, 1e-3F, 2e-3F,  1000.0F, 0.0F};
  const auto made = quantised(values, 2, 2, /*rotated=*/false, /*smoothed=*/false, 0, 2);
  ASSERT_EQ(made.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(made[i], values[i]) << i;
  EXPECT_EQ(quantised(values, 2, 2, false, false)[0], 0.0F) << "with a scale a head";
}

INSTANTIATE_TEST_SUITE_P(Formats, Quantise, testing::Values(Dtype::kE4M3, Dtype::kE5M2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace fp8_sdpa::reference
