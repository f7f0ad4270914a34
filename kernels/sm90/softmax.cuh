// Online softmax on a warpgroup's score accumulators.
//
// A lane holds, of 64 x kTileN scores, rows g + 8 h of its warp's 16 and columns 8 j + 2t + c, as
// s[4 j + 2 h + c]; g = lane / 4, t = lane % 4. The four lanes of a quad share their rows.
//
// Weights are 2^8 exp2(s - m): E4M3 holds 2^-9 to 448, so weights down to 2^-14 of the row's
// largest are normal numbers; none exceeds 2^8. The factor cancels in O / l. The sum l is of the
// weights before they are rounded: their errors average out in it, whereas in O each meets its
// value. A NaN score makes m, hence every weight of its row, NaN.
#pragma once

#include <cmath>

#include "attention/online_softmax.hpp"
#include "attention/register_softmax.hpp"
#include "gpu/hopper.hpp"

namespace fp8_sdpa::sm90 {

inline constexpr float kLog2WeightScale = 8.0F;

/// What a lane remembers of its two rows.
struct Rows {
  float max[2] = {-INFINITY, -INFINITY};  ///< m, a raw score; equal in the quad
  float sum[2] = {0.0F, 0.0F};            ///< l, the lane's share
  float rescale[2] = {0.0F, 0.0F};        ///< what O is owed for the last growth of m
  int limit[2] = {0, 0};                  ///< keys seen: those below, counted from column 2t
  float scale = 0.0F;                     ///< raw score -> units of log2(e)
};

/// -inf where a row does not see the key.
template <int kRegisters>
GPU_FN void mask_scores(float (&s)[kRegisters], int first_key, const Rows& rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int left = rows.limit[h] - first_key;
#pragma unroll
    for (int i = 0; i < kRegisters / 2; ++i) {
      const int column = i / 2 * 8 + i % 2;
      if (column >= left) s[i / 2 * 4 + 2 * h + i % 2] = -INFINITY;
    }
  }
}

/// Raw scores become weights; rows.rescale is what older sums must be multiplied with, l among
/// them, here, and O, by the caller. kSum: whether l is summed here.
template <bool kSum, int kRegisters>
GPU_FN void softmax(float (&s)[kRegisters], Rows& rows) {
  float base[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float partial[2] = {s[2 * h], s[2 * h + 1]};
#pragma unroll
    for (int j = 1; j < kRegisters / 4; ++j) {
      partial[0] = gpu::max_nan(partial[0], s[4 * j + 2 * h]);
      partial[1] = gpu::max_nan(partial[1], s[4 * j + 2 * h + 1]);
    }
    base[h] = gpu::max_nan(partial[0], partial[1]);
  }
  float offset[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float max = gpu::max_nan(rows.max[h], attention::max_over_quad(base[h]));
    const float finite = attention::finite_max(max);
    rows.rescale[h] = gpu::exp2_approx((rows.max[h] - finite) * rows.scale);
    offset[h] = gpu::fma(-finite, rows.scale, kLog2WeightScale);
    rows.max[h] = max;
  }
  float sum[2][2] = {};
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    const int h = i / 2 % 2;
    s[i] = gpu::exp2_approx(gpu::fma(s[i], rows.scale, offset[h]));
    if constexpr (kSum) sum[h][i % 2] += s[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if constexpr (kSum) rows.sum[h] = gpu::fma(rows.sum[h], rows.rescale[h], sum[h][0] + sum[h][1]);
  }
}

/// Weights as operands of P V, in the key order of producer.cuh: weights[b][h + 2 a] holds, of row
/// g + 8 h, columns 32 b + 16 a + 2t + {0, 1, 8, 9}.
template <int kRegisters>
GPU_FN void pack_weights(const float (&s)[kRegisters],
                         std::uint32_t (&weights)[kRegisters / 16][4]) {
#pragma unroll
  for (int i = 0; i < kRegisters / 4; ++i) {
    const float* first = &s[i / 2 * 8 + i % 2 * 2];
    weights[i / 4][i % 4] =
        static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(first[0], first[1])) |
        static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(first[4], first[5])) << 16;
  }
}

}  // namespace fp8_sdpa::sm90
