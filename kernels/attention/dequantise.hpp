// FP8 codes to half, exactly: every E4M3 and E5M2 value is a half. Descales are applied later, in
// fp32.
#pragma once

#include <cstdint>

#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// 16 FP8 codes as loaded (16 bytes), and the 16 halves that they become.
using Codes16 = uint4;
struct alignas(16) Halves16 {
  __half2 pairs[8];
};

/// Codes to halves by the conversion instruction.
GPU_FN Halves16 dequantise(const Codes16& codes, Dtype dtype) {
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  Halves16 out;
  if (dtype == Dtype::kE4M3) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const gpu::Half4 four = gpu::e4m3x4_to_half4(words[i]);
      out.pairs[2 * i] = four.low;
      out.pairs[2 * i + 1] = four.high;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const gpu::Half4 four = gpu::e5m2x4_to_half4(words[i]);
      out.pairs[2 * i] = four.low;
      out.pairs[2 * i + 1] = four.high;
    }
  }
  return out;
}

/// Codes to halves through a 256-entry table, (code) -> half, in shared memory.
GPU_FN Halves16 dequantise(const Codes16& codes, const __half (&table)[256]) {
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  Halves16 out;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t pair = words[i / 2] >> (i % 2 * 16);
    out.pairs[i] = __halves2half2(table[pair & 0xFFU], table[pair >> 8 & 0xFFU]);
  }
  return out;
}

/// Fills entries first, first + step, ... of the table that the function above reads.
GPU_FN void fill_dequantisation_table(__half (&table)[256], Dtype dtype, int first, int step) {
  for (int code = first; code < 256; code += step) {
    const auto pair = static_cast<std::uint16_t>(code);
    const __half2 value =
        dtype == Dtype::kE4M3 ? gpu::e4m3x2_to_half2(pair) : gpu::e5m2x2_to_half2(pair);
    table[code] = __low2half(value);
  }
}

}  // namespace fp8_sdpa::attention
