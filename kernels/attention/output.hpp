// Output elements, half, bf16 or E4M3, as they lie in memory. Pointers to O and its strides count
// words of 16 bits, of which one holds two elements of E4M3.
#pragma once

#include <cstdint>
#include <cstring>

#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// Of O, of which one row after the other is written.
GPU_FN constexpr int elements_of_word(Dtype dtype) { return dtype == Dtype::kE4M3 ? 2 : 1; }

/// Two neighbours, `low` first: a word of 16 bits each, or one of both. Who has no output of E4M3
/// does without the question for it.
template <bool kMayBeE4M3>
GPU_FN std::uint32_t pack_output(float low, float high, Dtype dtype) {
  std::uint32_t bits = 0;
  if (kMayBeE4M3 && dtype == Dtype::kE4M3) {
    bits = gpu::float2_to_e4m3x2(low, high);
  } else if (dtype == Dtype::kHalf) {
    const __half2 pair = gpu::float2_to_half2(low, high);
    memcpy(&bits, &pair, sizeof bits);
  } else {
    const __nv_bfloat16 pair[2] = {gpu::float_to_bfloat16(low), gpu::float_to_bfloat16(high)};
    memcpy(&bits, pair, sizeof bits);
  }
  return bits;
}

/// Four neighbours, to element `column`, a multiple of four, of those from `to` on.
GPU_FN void store_four(std::uint16_t* to, int column, const float4& x, Dtype dtype) {
  const std::uint32_t low = pack_output<true>(x.x, x.y, dtype);
  const std::uint32_t high = pack_output<true>(x.z, x.w, dtype);
  if (dtype == Dtype::kE4M3) {
    *reinterpret_cast<std::uint32_t*>(to + column / 2) = high << 16 | low;
  } else {
    *reinterpret_cast<uint2*>(to + column) = make_uint2(low, high);
  }
}

}  // namespace fp8_sdpa::attention
