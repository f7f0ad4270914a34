// Output elements, half or bf16, as they lie in memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// Two neighbours, `low` first.
GPU_FN std::uint32_t pack_output(float low, float high, Dtype dtype) {
  std::uint32_t bits = 0;
  if (dtype == Dtype::kHalf) {
    const __half2 pair = gpu::float2_to_half2(low, high);
    memcpy(&bits, &pair, sizeof bits);
  } else {
    const __nv_bfloat16 pair[2] = {gpu::float_to_bfloat16(low), gpu::float_to_bfloat16(high)};
    memcpy(&bits, pair, sizeof bits);
  }
  return bits;
}

}  // namespace fp8_sdpa::attention
