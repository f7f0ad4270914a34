// Errors of attention on unquantised tensors.
#include "benchmarks/peers/unquantised/head_judge.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "benchmarks/peers/unquantised/unquantised.hpp"
#include "reference/formats/half.hpp"
#include "reference/oracle/oracle.hpp"

namespace fp8_sdpa::bench {
namespace {

TEST(HeadJudge, MeasuresRowsOfSixteenHeads) {
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    reference::Shape shape = reference::shape_of("made", {2, 10, 10, 160, 160, 64, mask});
    shape.inputs.family = "outliers";
    const auto values = reference::draw_inputs(shape, 5);
    ASSERT_TRUE(values.ok());
    const HeadJudge judge(shape, *values, 7);
    const auto exact = reference::attention_fp64(values->q, values->k, values->v,
                                                 reference::sizes_of(shape), 0.125);
    const auto as_bf16 = [](float x) {
      return reference::decode_16(reference::encode_16(x, Dtype::kBFloat16), Dtype::kBFloat16);
    };
    std::vector<float> o;
    for (const float x : exact.o) o.push_back(as_bf16(x));
    const double rounded = judge.rmse(o);
    EXPECT_LT(rounded, 1e-3);
    EXPECT_GT(rounded, 0.0);
    // One head in five is not looked at, nor is one row in five; the first row of the first head
    // and the last of the last one are.
    const std::size_t head = 160 * 64;
    for (const std::size_t at : {4 * head + 5, 4 * std::size_t{64}}) {
      auto unseen = o;
      unseen[at] = 1e30F;
      EXPECT_EQ(judge.rmse(unseen), rounded) << at;
    }
    for (const std::size_t at : {std::size_t{0}, 20 * head - 1}) {
      auto wrong = o;
      wrong[at] = as_bf16(exact.o[at] + 16.0F);
      EXPECT_NEAR(judge.rmse(wrong), 16.0 / std::sqrt(16 * 128 * 64), 2e-3) << at;
    }
    // What is lost in quantisation: some of it by outliers, which a rotation spreads.
    const auto lost = [&](bool rotate, bool smooth) {
      return judge.rmse_of_exact(rotate, smooth, Granularity::kHead);
    };
    if (mask == Mask::kNone) {
      EXPECT_LT(lost(true, false), lost(false, false));
    }
    EXPECT_NEAR(lost(false, true), lost(false, false), 0.2 * lost(false, false));
  }
}

// An outlier costs its block, and no other.
TEST(HeadJudge, KnowsDescalesOfBlocks) {
  reference::Shape shape = reference::shape_of("made", {1, 4, 4, 512, 512, 64, Mask::kNone});
  shape.inputs.family = "outliers";
  const auto values = reference::draw_inputs(shape, 5);
  ASSERT_TRUE(values.ok());
  const HeadJudge judge(shape, *values, 7);
  EXPECT_LT(judge.rmse_of_exact(false, false, Granularity::kBlock),
            0.95 * judge.rmse_of_exact(false, false, Granularity::kHead));
}

TEST(UnquantisedShapes, AreOfEachHeadDimMaskAndLength) {
  const auto shapes = unquantised_shapes();
  ASSERT_EQ(shapes.size(), 18U);
  EXPECT_EQ(shapes[9].name, "d128_8k_causal");
  EXPECT_EQ(shapes[9].seq_kv, 8192);
  EXPECT_EQ(shapes[9].mask, Mask::kCausal);
  EXPECT_EQ(shapes[17].heads_q, 8);
  EXPECT_EQ(shapes[17].inputs.family, "outliers");
}

}  // namespace
}  // namespace fp8_sdpa::bench
