// Weights as sums of two E4M3 terms, for few keys: where weights are few, their rounding errors do
// not average out in O. The second term holds what the first one's 4 significant bits leave.
#pragma once

#include "attention/e4m3_terms.hpp"
#include "sm90/compute/softmax.cuh"

namespace fp8_sdpa::sm90 {

/// Raw scores become weights, l takes them in, and their terms become operands of P V, in the key
/// order of transpose_values.cuh: large[b][h + 2 a] holds, of row g + 8 h, columns
/// 32 b + 16 a + 2t + {0, 1, 8, 9}, and small[b][h + 2 a] what is left of them.
template <int kRegisters>
GPU_FN void exponentiate_in_two_terms(const float (&s)[kRegisters], Rows& rows,
                                      std::uint32_t (&large)[kRegisters / 16][4],
                                      std::uint32_t (&small)[kRegisters / 16][4]) {
  const float offset[2] = {weight_offset(rows, 0), weight_offset(rows, 1)};
#pragma unroll
  for (int i = 0; i < kRegisters / 4; ++i) {
    const int h = i % 2;
    const float* first = &s[i / 2 * 8 + 2 * h];
    float p[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      p[c] = gpu::exp2_approx(gpu::fma(first[c / 2 * 4 + c % 2], rows.scale, offset[h]));
      rows.sum[h] += p[c];
    }
    large[i / 4][i % 4] = attention::take_term(p);
    small[i / 4][i % 4] = attention::take_term(p);
  }
}

}  // namespace fp8_sdpa::sm90
