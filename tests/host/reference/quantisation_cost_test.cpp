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
  for (std::size_t i = 1; i < costs.size(); ++i) EXPECT_GE(costs[i - 1].of[0], costs[i].of[0]);
  // The two query heads of the KV head with offsets come first, and smoothing helps them.
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(costs[i].batch, 1);
    EXPECT_GE(costs[i].head, 2);
    const auto& [plain, rotated, smoothed, both, blocks, blocks_both] = costs[i].of;
    EXPECT_GT(plain, 1.5 * costs[2].of[0]);
    EXPECT_LT(smoothed, 0.7 * plain);
    EXPECT_LT(both, 0.7 * plain);
    EXPECT_GT(rotated, both);
    EXPECT_LT(blocks_both, 0.7 * blocks);
  }
  for (const QuantisationCost& cost : costs) {
    for (const double with_both : {cost.of[3], cost.of[5]}) {
      EXPECT_GT(with_both, 0.005);
      EXPECT_LT(with_both, 0.1);
    }
  }
}

// Beside it, all other rows of the head are zeros.
TEST(QuantisationCosts, OfBlocksALargeRowCostsItsOwnBlockAlone) {
  CaseData data = draw_case(shape_of("normal", {1, 1, 1, 150, 300, 64, Mask::kNone}), 3);
  for (std::size_t i = 0; i < 64; ++i) data.inputs.q[140 * 64 + i] *= 1e7F;
  data.q = quantise(data.inputs.q, 1, 150 * 64, Dtype::kE4M3);
  const auto costs = quantisation_costs(*with_references(data));
  const double of_heads = costs.front().of[0];
  const double of_blocks = costs.front().of[4];
  // Rows 128 and up are of the large one's block.
  EXPECT_LT(of_blocks, 0.6 * of_heads);
  EXPECT_GT(of_heads, 0.1);
}

TEST(QuantisationCosts, ATableHasTheWorstHeadsAndTheMean) {
  const std::vector<QuantisationCost> costs = {{1, 2, {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.0}},
                                               {0, 3, {0.25, 0.25, 0.125, 0.0625, 0.03125, 0.0}},
                                               {0, 1, {0.0, 0.25, 0.125, 0.0625, 0.03125, 0.0}}};
  EXPECT_EQ(cost_table(costs, 2),
            "| batch | head | as it is | rotated | smoothed | both | blocks | blocks, both |\n"
            "|---|---|---|---|---|---|---|---|\n"
            "| 1 | 2 | 0.5000 | 0.2500 | 0.1250 | 0.0625 | 0.0312 | 0.0000 |\n"
            "| 0 | 3 | 0.2500 | 0.2500 | 0.1250 | 0.0625 | 0.0312 | 0.0000 |\n"
            "| mean of | all 3 | 0.2500 | 0.2500 | 0.1250 | 0.0625 | 0.0312 | 0.0000 |\n");
}

}  // namespace
}  // namespace fp8_sdpa::reference
