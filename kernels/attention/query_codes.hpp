// Query rows as codes in registers, and the scale of their scores.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/online_softmax.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

inline constexpr int kChunk = 16;  ///< codes of a vector access

/// The codes of Q that a lane needs, codes[c][h]: row g + 8 h of the warp's 16, dims 16 c + 4 t to
/// + 3. Rows that do not exist are zero.
template <int kHeadDim>
struct QueryCodes {
  std::uint32_t codes[kHeadDim / kChunk][2];
};

/// Raw scores to units of log2(e): a positive factor, so that the largest raw score stays the
/// largest. A negative descale goes into the sign of Q's codes.
struct ScoreScale {
  float factor;
  std::uint32_t flip_signs;  ///< of four codes

  GPU_FN explicit ScoreScale(float scale)
      : factor(score_factor(scale)), flip_signs(scale < 0.0F ? 0x80808080U : 0U) {}
};

}  // namespace fp8_sdpa::attention
