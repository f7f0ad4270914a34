// Numbers as sums of E4M3 terms: each holds what the 4 significant bits of the ones before leave.
#pragma once

#include <cstdint>

#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// Four weights to E4M3, rounded to nearest; what that leaves of them stays behind.
GPU_FN std::uint32_t take_term(float (&weights)[4]) {
  const std::uint32_t low = gpu::float2_to_e4m3x2(weights[0], weights[1]);
  const std::uint32_t high = gpu::float2_to_e4m3x2(weights[2], weights[3]);
  const std::uint32_t codes = low | high << 16;
  const gpu::Half4 taken = gpu::e4m3x4_to_half4(codes);
  const float2 taken_low = gpu::half2_to_float2(taken.low);
  const float2 taken_high = gpu::half2_to_float2(taken.high);
  weights[0] -= taken_low.x;
  weights[1] -= taken_low.y;
  weights[2] -= taken_high.x;
  weights[3] -= taken_high.y;
  return codes;
}

}  // namespace fp8_sdpa::attention
