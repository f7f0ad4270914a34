// Online softmax for one query row (Milakov and Gimelshein, arXiv 1805.02867; FlashAttention-2,
// arXiv 2307.08691, Algorithm 1). Scores come in units of log2(e), so that exp is one ex2.
#pragma once

#include <cmath>

#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

/// What brings raw scores to units of log2(e), from the product of all scales: positive, so that
/// the largest raw score stays the largest; its sign goes elsewhere. A number is added that changes
/// none above 2^-75: with zero every score is then as good as zero, and a masked key's -inf no NaN,
/// also where a kernel scales the factor down by up to 2^-26.
inline constexpr float kNotZero = 0x1p-100F;
GPU_FN float score_factor(float scale) { return fabsf(scale) + kNotZero; }

/// What a row remembers between KV tiles.
struct RowState {
  float max = -INFINITY;  ///< m: the largest score so far
  float sum = 0.0F;       ///< l: sum of exp2(score - m) so far
};

/// The number to subtract from a row's scores: its max, or 0 while every score is -inf (exp2 of
/// -inf is 0, whereas -inf minus -inf would be a NaN that no input asked for).
GPU_FN float finite_max(float row_max) { return row_max == -INFINITY ? 0.0F : row_max; }

/// exp2(m - m'): what the row's old sums are multiplied with when its max grows from m to m'. 0 for
/// the first tile.
GPU_FN float rescale_factor(float old_max, float new_max) {
  return gpu::exp2_approx(old_max - finite_max(new_max));
}

/// What a row's accumulated P V is multiplied with at the end: v_descale / l, or 0 for a row that
/// saw no key. A NaN in l stays a NaN.
GPU_FN float output_scale(const RowState& row, float v_descale) {
  return row.sum == 0.0F ? 0.0F : v_descale / row.sum;
}

/// Natural-log-sum-exp of a row; -inf for a row that saw no key.
GPU_FN float log_sum_exp(const RowState& row) {
  return row.sum == 0.0F ? -INFINITY : (row.max + gpu::log2_approx(row.sum)) * kLn2;
}

}  // namespace fp8_sdpa::attention
