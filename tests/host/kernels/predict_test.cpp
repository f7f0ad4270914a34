// What launches are predicted to take, in microseconds: the ground of the library's choice.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "dispatch/choose.hpp"
#include "dispatch/variant_impl.hpp"
#include "sm90/costs.hpp"
#include "sm90/sm90.hpp"
#include "sm90/tile_shapes.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::detail {
namespace {

struct Sizes {
  int batch, heads;
  std::int64_t seq;
  int head_dim;
};
Problem problem_of(const Sizes& of, Mask mask = Mask::kNone) {
  Problem p = tests::made_up(of.batch, of.heads, of.heads, of.seq, of.seq, of.head_dim);
  p.mask = mask;
  return p;
}

// The cost model itself, in microseconds of 132 multiprocessors: lengths that end inside tiles, and
// causal ones that fill them. Who fits it anew writes other numbers here.
TEST(Choose, PredictionsAreThoseOfTheCostModel) {
  struct Predicted {
    std::string_view kernel;
    double none, causal;
  };
  constexpr Predicted kPredicted[] = {
      {"sm90_independent_d64_exact", 32.90, 22.39},
      {"sm90_independent_d64_rounded", 27.17, 18.24},
      {"sm90_independent_d256_rounded", 57.91, 38.29},
      {"sm90_pre_transpose_d64_rounded", 28.73, 19.78},
      {"sm90_pre_transpose_d256_rounded", 63.14, 45.23},
      {"sm90_shared_transpose_d256_rounded", 62.01, 44.07},
      {"sm90_ping_pong_d128_exact", 41.70, 30.06},
      {"sm90_ping_pong_d128_rounded", 40.06, 28.86},
      {"sm90_ping_pong_d256_exact", 60.28, 39.91},
      {"sm90_ping_pong2_d128_rounded", 40.16, 27.63},
      {"sm90_kv_split_d64_exact", 41.61, 32.26},
      {"sm90_kv_split_d128_exact", 53.85, 40.49},
      {"sm90_kv_split2_d64_rounded", 26.65, 20.89},
      {"sm90_short_d64_exact", 6.68, 6.68},
      {"sm90_short_d128_exact", 7.61, 7.61},
      {"sm90_short_d256_exact", 9.60, 9.60},
      {"sm90_block_scales_d64_rounded", 29.20, 19.28},
      {"sm90_block_scales_d128_rounded", 42.24, 30.10},
      {"sm90_block_scales_d256_rounded", 63.96, 42.65},
      {"sm90_packed_gqa_d64_rounded", 29.49, 20.08},
      {"sm90_packed_gqa_d128_rounded", 41.60, 30.34},
      {"sm90_packed_gqa_d256_rounded", 60.16, 40.08},
      {"sm90_packed_gqa2_d128_rounded", 39.98, 27.98},
      {"sm90_packed_short_d64_exact", 7.29, 7.29},
      {"sm90_packed_short_d128_exact", 8.90, 8.90},
      {"sm90_packed_short_d256_exact", 10.63, 10.63},
      {"sm90_ragged_d64_rounded", 35.56, 24.84},
      {"sm90_ragged_d128_rounded", 56.35, 37.51},
      {"sm90_ragged_d256_rounded", 66.30, 46.60},
      {"sm90_int8_half_d64_exact", 40.23, 27.45},
      {"sm90_int8_half_d128_exact", 47.19, 33.27},
      {"sm90_int8_half_d256_exact", 66.80, 43.74},
      {"sm90_int8_bf16_d64_exact", 40.23, 27.45},
      {"sm90_int8_bf16_d128_exact", 47.19, 33.27},
      {"sm90_int8_bf16_d256_exact", 66.80, 43.74},
  };
  ASSERT_EQ(std::size(kPredicted), std::size(sm90::kTileShapes));
  for (std::size_t i = 0; i < std::size(kPredicted); ++i) {
    const sm90::TileShape& shape = sm90::kTileShapes[i];
    const bool few = shape.config.two_terms;
    const auto us = [&](const Sizes& sizes, Mask mask) {
      Problem p = problem_of(sizes, mask);
      if (shape.config.int8()) {
        p.q.dtype = p.k.dtype = Dtype::kInt8;
        p.v.dtype = Dtype::kHalf;
      }
      return predicted_us(shape, p, 132, {});
    };
    const Sizes ends_inside{2, 24, few ? 100 : 1000, shape.head_dim};
    const Sizes whole_tiles{2, 24, few ? 128 : 1024, shape.head_dim};
    EXPECT_EQ(shape.kernel, kPredicted[i].kernel);
    EXPECT_NEAR(us(ends_inside, Mask::kNone), kPredicted[i].none, 0.005);
    EXPECT_NEAR(us(whole_tiles, Mask::kCausal), kPredicted[i].causal, 0.005);
  }
}

// Of a ragged batch: where one warpgroup has rows and pages are large, a tile takes three fifths.
TEST(Choose, FewRowsOnLargePagesTakeLess) {
  const std::int32_t table[1] = {0};
  const sm90::TileShape& ragged =
      sm90::kTileShapes[sm90::find_tile_shape("sm90_ragged", 64, /*exact=*/false)];
  const auto tiles_us = [&](int page, std::int64_t queries) {
    Problem p = problem_of({1, 8, 4096, 64});
    p.seq_q = queries;
    if (page > 0) p.pages = {table, 4096, page, 4096};
    return predicted_us(ragged, p, 132, {}) - cost_of(ragged).launch_us;
  };
  EXPECT_NEAR(tiles_us(64, 64), 0.6 * tiles_us(32, 64), 1e-9);
  EXPECT_NEAR(tiles_us(0, 64), tiles_us(32, 64) + 2.0, 1e-9) << "whole tensors";
  EXPECT_EQ(tiles_us(64, 65), tiles_us(32, 65));
  EXPECT_EQ(tiles_us(32, 64), tiles_us(32, 65));
}

// Four heads that share tiles: under the causal mask, and, from head_dim 128 on, where one
// warpgroup has all rows of a KV head.
TEST(Choose, SharedHeadsTakeLonger) {
  const auto tiles_us = [](std::int64_t queries, Mask mask, int head_dim = 128) {
    const sm90::TileShape& shape =
        sm90::kTileShapes[sm90::find_tile_shape("sm90_packed_gqa", head_dim, /*exact=*/false)];
    Problem p = problem_of({1, 8, 4096, head_dim}, mask);
    p.heads_q = 32;
    p.seq_q = queries;
    const double us = predicted_us(shape, p, 132, {}) - cost_of(shape).launch_us;
    return std::pair{us, cost_of(shape).tile_us * sm90::load_of(shape, p, 132, {}).tiles};
  };
  const auto [none, none_tiles] = tiles_us(64, Mask::kNone);  // which all see 32 tiles of keys
  const auto [causal, causal_tiles] = tiles_us(64, Mask::kCausal);
  EXPECT_NEAR(none, none_tiles, 1e-9);
  EXPECT_NEAR(causal, 1.04 * none, 1e-9);
  const auto [few, few_tiles] = tiles_us(16, Mask::kNone);
  EXPECT_NEAR(few, 1.2 * few_tiles, 1e-9);
  const auto [more, more_tiles] = tiles_us(17, Mask::kNone);
  EXPECT_NEAR(more, more_tiles, 1e-9);
  const auto [narrow, narrow_tiles] = tiles_us(16, Mask::kNone, 64);
  EXPECT_NEAR(narrow, narrow_tiles, 1e-9);
  const auto [wide, wide_tiles] = tiles_us(16, Mask::kNone, 256);
  EXPECT_NEAR(wide, 1.2 * wide_tiles, 1e-9);
}

// K and V of 132 heads of 16k keys, 1.1 GB at head_dim 256, are longer under way than their tiles
// take: at 3.8 TB/s, 3.9 at head_dim 128, 3.3 at 64.
TEST(Choose, KeysComeNoFasterThanMemory) {
  const auto transfer_us = [](const char* variant, int head_dim, std::int64_t queries,
                              Mask mask = Mask::kNone) {
    Problem wide = problem_of({1, 132, 16384, head_dim}, mask);
    wide.seq_q = queries;
    const sm90::TileShape& shape =
        sm90::kTileShapes[sm90::find_tile_shape(variant, head_dim, /*exact=*/false)];
    return predicted_us(shape, wide, 132, {}) - cost_of(shape).launch_us;
  };
  EXPECT_NEAR(transfer_us("sm90_independent", 256, 128), 291.394, 0.005);
  EXPECT_NEAR(transfer_us("sm90_kv_split", 128, 64), 141.961, 0.005);
  EXPECT_NEAR(transfer_us("sm90_kv_split2", 64, 64), 83.886, 0.005);
  // In boxes of 64 keys, once for each 64 rows.
  EXPECT_NEAR(transfer_us("sm90_kv_split", 64, 1), 102.527, 0.005);
  EXPECT_NEAR(transfer_us("sm90_kv_split", 64, 65), 205.054, 0.005);
  // Under the causal mask those that are seen: three quarters, of half as many queries.
  EXPECT_NEAR(transfer_us("sm90_kv_split", 64, 8192), 128 * 102.527, 0.5);
  EXPECT_NEAR(transfer_us("sm90_kv_split", 64, 8192, Mask::kCausal), 96 * 102.527, 0.5);
}

// A device's own multiprocessors, not an H200's.
TEST(Choose, PredictsForTheDevice) {
  Device device = tests::made_up_device(90);
  const Problem p = problem_of({4, 16, 4096, 64});
  const auto us = [&](int sm_count) {
    device.sm_count = sm_count;
    const auto all = predictions(p, device, {});
    return all.empty() ? 0.0 : all.front().us;
  };
  if (us(132) == 0.0) GTEST_SKIP() << "this build has no device code";
  EXPECT_GT(us(66), 1.5 * us(132));
}

// A block of sm80 is 32 rows of a head, and multiprocessors take one each at a time.
TEST(Choose, PredictionsOfSm80AreOfWholeRounds) {
  const Variant& variant = **find_variant("sm80_mma");
  const auto us = [&](int heads) {
    return variant.impl->predicted_us(problem_of({1, heads, 32, 64}), 132, {});
  };
  const double round = us(1) - 2.5;  // less the launch
  EXPECT_GT(round, 0.0);
  for (const auto& [heads, rounds] : {std::pair{132, 1}, {133, 2}, {264, 2}, {265, 3}}) {
    EXPECT_NEAR(us(heads), 2.5 + rounds * round, 1e-9) << heads;
  }
}

}  // namespace
}  // namespace fp8_sdpa::detail
