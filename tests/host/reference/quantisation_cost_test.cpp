// What quantisation costs each head.
#include "reference/judge/quantisation_cost.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>

namespace fp8_sdpa::reference {
namespace {

/// Two batches of four heads, two of which share KV heads: outliers in all, and one KV head whose
/// channels have offsets.
CaseData outliers_and_offsets() {
  Shape shape = shape_of("made", {2, 4, 2, 60, 200, 64, Mask::kCausal});
  shape.inputs.family = "outliers";
  CaseData data = draw_case(shape, 3);
  const std::size_t head = 200 * 64;
  for (std::size_t i = 0; i < head; ++i) {
    data.inputs.k[3 * head + i] += 4.0F * static_cast<float>(i % 64 % 5);
  }
  data.k = quantise(data.inputs.k, 4, head, Dtype::kE4M3);
  return data;
}

TEST(QuantisationCosts, TellWhichHeadLosesAndWhatWouldHelp) {
  const auto data = with_references(outliers_and_offsets());
  const auto costs = quantisation_costs(*data);
  ASSERT_EQ(costs.size(), 8U);
  for (std::size_t i = 1; i < costs.size(); ++i) EXPECT_GE(costs[i - 1].plain, costs[i].plain);
  // The two query heads of the KV head with offsets come first, and smoothing helps them.
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(costs[i].batch, 1);
    EXPECT_GE(costs[i].head, 2);
    EXPECT_GT(costs[i].plain, 1.5 * costs[2].plain);
    EXPECT_LT(costs[i].smooth, 0.7 * costs[i].plain);
    EXPECT_LT(costs[i].both, 0.7 * costs[i].plain);
    EXPECT_GT(costs[i].rotate, costs[i].both);
  }
  for (const QuantisationCost& cost : costs) {
    EXPECT_GT(cost.both, 0.005);
    EXPECT_LT(cost.both, 0.1);
  }
}

TEST(QuantisationCosts, ATableHasTheWorstHeadsAndTheMean) {
  const std::vector<QuantisationCost> costs = {{1, 2, 0.5, 0.25, 0.125, 0.0625},
                                               {0, 3, 0.25, 0.25, 0.125, 0.0625},
                                               {0, 1, 0.0, 0.25, 0.125, 0.0625}};
  EXPECT_EQ(cost_table(costs, 2),
            "| batch | head | as it is | rotated | smoothed | both |\n|---|---|---|---|---|---|\n"
            "| 1 | 2 | 0.5000 | 0.2500 | 0.1250 | 0.0625 |\n"
            "| 0 | 3 | 0.2500 | 0.2500 | 0.1250 | 0.0625 |\n"
            "| mean of | all 3 | 0.2500 | 0.2500 | 0.1250 | 0.0625 |\n");
}

}  // namespace
}  // namespace fp8_sdpa::reference
