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
  float scale = 0.0F;                     ///< raw score -> units of log2(e)
};

/// -inf in the columns of a tile from `left[h]` on, counted from the lane's column 2t.
template <int kRegisters>
GPU_FN void mask_scores(float (&s)[kRegisters], const int (&left)[2]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    if (i / 4 * 8 + i % 2 >= left[i / 2 % 2]) s[i] = -INFINITY;
  }
}

/// m takes in a tile's raw scores; `rescale` is what older sums must be multiplied with: O, by the
/// caller, and l, here.
template <int kRegisters>
GPU_FN void grow_max(const float (&s)[kRegisters], Rows& rows, float (&rescale)[2]) {
  float max[2] = {rows.max[0], rows.max[1]};
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) max[i / 2 % 2] = gpu::max_nan(max[i / 2 % 2], s[i]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    max[h] = attention::max_over_quad(max[h]);
    rescale[h] = gpu::exp2_approx((rows.max[h] - attention::finite_max(max[h])) * rows.scale);
    rows.max[h] = max[h];
    rows.sum[h] *= rescale[h];
  }
}

/// Raw scores become weights, l takes them in (kSum), and they are rounded to operands of P V, in
/// the key order of producer.cuh: weights[b][h + 2 a] holds, of row g + 8 h, columns
/// 32 b + 16 a + 2t + {0, 1, 8, 9}.
template <bool kSum, int kRegisters>
GPU_FN void exponentiate(const float (&s)[kRegisters], Rows& rows,
                         std::uint32_t (&weights)[kRegisters / 16][4]) {
  const float offset[2] = {
      gpu::fma(-attention::finite_max(rows.max[0]), rows.scale, kLog2WeightScale),
      gpu::fma(-attention::finite_max(rows.max[1]), rows.scale, kLog2WeightScale)};
#pragma unroll
  for (int i = 0; i < kRegisters / 4; ++i) {
    const int h = i % 2;
    const float* first = &s[i / 2 * 8 + 2 * h];
    float p[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      p[c] = gpu::exp2_approx(gpu::fma(first[c / 2 * 4 + c % 2], rows.scale, offset[h]));
      if constexpr (kSum) rows.sum[h] += p[c];
    }
    weights[i / 4][i % 4] = static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(p[0], p[1])) |
                            static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(p[2], p[3])) << 16;
  }
}

}  // namespace fp8_sdpa::sm90
