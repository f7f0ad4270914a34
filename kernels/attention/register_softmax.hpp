// Online softmax on scores in mma accumulators: S never leaves the registers.
//
// A lane holds, of each 16 x 8 accumulator tile, columns 2t and 2t + 1 of rows g (elements 0, 1)
// and g + 8 (elements 2, 3); g = lane / 4, t = lane % 4. The four lanes of a quad share their rows.
#pragma once

#include "attention/online_softmax.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// (m, l) of a lane's two rows. m is a raw score, before any scale, and equal in the quad; l is the
/// lane's share of the row's sum, until sum_over_quad().
struct LaneRows {
  RowState row[2];
};

/// -inf in the columns of keys from `keys_left` on, counted from the tiles' first column.
template <int kTiles>
GPU_FN void mask_columns(float (&s)[kTiles][4], int keys_left) {
  const int first = gpu::lane_idx() % 4 * 2;
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) {
    if (i / 4 * 8 + first + i % 2 >= keys_left) s[i / 4][i % 4] = -INFINITY;
  }
}

/// A value's maximum over the quad.
GPU_FN float max_over_quad(float x) {
  x = gpu::max_nan(x, gpu::shfl_xor(x, 1));
  return gpu::max_nan(x, gpu::shfl_xor(x, 2));
}

GPU_FN float sum_over_quad(float x) {
  x += gpu::shfl_xor(x, 1);
  return x + gpu::shfl_xor(x, 2);
}

/// One step of rows h: raw scores become weights 2^kLog2Scale * exp2((s - m') * factor); returns
/// what the row's old sums are multiplied with, l, here, and O, by the caller. factor > 0.
template <int kLog2Scale, int kTiles>
GPU_FN float softmax_row_step(float (&s)[kTiles][4], int h, float factor, RowState& row) {
  float tile_max = gpu::max_nan(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
  for (int j = 1; j < kTiles; ++j) {
    tile_max = gpu::max_nan(tile_max, gpu::max_nan(s[j][2 * h], s[j][2 * h + 1]));
  }
  const float new_max = gpu::max_nan(row.max, max_over_quad(tile_max));
  const float base = finite_max(new_max);
  const float offset = static_cast<float>(kLog2Scale) - base * factor;
  const float rescale = gpu::exp2_approx((row.max - base) * factor);
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    float& x = s[i / 2][2 * h + i % 2];
    x = gpu::exp2_approx(gpu::fma(x, factor, offset));
    sum += x;
  }
  row = {new_max, gpu::fma(row.sum, rescale, sum)};
  return rescale;
}

/// Both rows of a lane, of one factor.
template <int kLog2Scale, int kTiles>
GPU_FN void softmax_step(float (&s)[kTiles][4], float factor, LaneRows& rows, float (&rescale)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rescale[h] = softmax_row_step<kLog2Scale>(s, h, factor, rows.row[h]);
  }
}

}  // namespace fp8_sdpa::attention
