// O = U / l and LSE of accumulators as a warp of wgmma has them (softmax.cuh), to memory.
#pragma once

#include <cmath>

#include "attention/output.hpp"
#include "sm90/compute/softmax.cuh"
#include "sm90/shared.cuh"
#include "sm90/work/work.cuh"

namespace fp8_sdpa::sm90 {

/// LSE of a lane's row h. No key seen: -inf; a NaN in l stays one.
GPU_FN float log_sum_exp(const Rows& rows, int h) {
  const float l = rows.sum[h];
  if (l == 0.0F) return -INFINITY;
  return (gpu::fma(rows.max[h], rows.scale, -kLog2WeightScale) + gpu::log2_approx(l)) *
         attention::kLn2;
}
GPU_FN std::int64_t lse_index(const Params& p, int batch, int head, int query) {
  return (static_cast<std::int64_t>(batch) * p.heads_q.value + head) * p.seq_q + query;
}

/// What accumulators of a lane's row h are multiplied by. No key seen: 0, and O may hold 0 * NaN.
struct OutputScale {
  bool empty;
  float factor;
};
GPU_FN OutputScale output_scale(const Rows& rows, int h, float v_descale) {
  return {rows.sum[h] == 0.0F, v_descale / rows.sum[h]};
}

/// V's descale over the scale of an output of E4M3.
GPU_FN float over_output_scale(Dtype output, float v_descale, const Params& p) {
  return output == Dtype::kE4M3 ? v_descale / *p.o_scale : v_descale;
}

/// Lanes whose number differs in bit kBit exchange half of their words: who has the bit keeps the
/// upper ones of each two, and gets the other's.
template <int kBit, int kWords>
GPU_FN void exchange(int lane, std::uint32_t (&word)[kWords]) {
  const bool upper = (lane & kBit) != 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if ((i & kBit) != 0) continue;
    std::uint32_t& low = word[i];
    std::uint32_t& high = word[i | kBit];
    const std::uint32_t other = gpu::shfl_xor(upper ? low : high, kBit);
    (upper ? low : high) = other;
  }
}

/// Row h in kWords tiles of 8 columns, of which a lane has two each, a word. Lanes of a pair
/// exchange until each has two words of every other tile, and stores 8 bytes; of four tiles, quads
/// go on until each lane has all four of every fourth. Of E4M3 the lower half of a word is used,
/// and half as much is stored. `t` is the lane's number in its quad; its words go to column
/// `column` of those from `to` on, which is first_column() from the tiles' first.
template <int kWords>
GPU_FN void store_columns(const float* x, int h, const OutputScale& scale, int t, Dtype dtype,
                          bool inside, std::uint16_t* to, int column = 0) {
  static_assert(kWords == 2 || kWords == 4);
  struct alignas(kWords * sizeof(std::uint32_t)) Words {
    std::uint32_t word[kWords];
  };
  Words words;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const float* const of_row = x + 4 * i + 2 * h;
    words.word[i] = scale.empty ? 0
                                : attention::pack_output<true>(of_row[0] * scale.factor,
                                                               of_row[1] * scale.factor, dtype);
  }
  exchange<1>(t, words.word);
  if constexpr (kWords == 4) exchange<2>(t, words.word);
  if (!inside) return;
  if (dtype == Dtype::kE4M3) {
    struct alignas(kWords * sizeof(std::uint16_t)) Halves {
      std::uint16_t word[kWords];
    };
    Halves halves;
#pragma unroll
    for (int i = 0; i < kWords; ++i) halves.word[i] = static_cast<std::uint16_t>(words.word[i]);
    *reinterpret_cast<Halves*>(to + column / 2) = halves;
  } else {
    *reinterpret_cast<Words*>(to + column) = words;
  }
}
template <int kWords>
GPU_FN int first_column(int t) {
  return kWords == 4 ? 8 * t : 8 * (t % 2) + 4 * (t / 2);
}

}  // namespace fp8_sdpa::sm90
