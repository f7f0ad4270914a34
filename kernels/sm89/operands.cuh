// FP8 codes as operands of mma.sync m16n8k32, which multiplies them as they are (g = lane / 4,
// t = lane % 4).
//
// Q K^T: a register holds four neighbouring codes of a row, which is what ldmatrix, in pairs of
// codes, gives: no permutation.
//
// P V, 32 keys as the multiply's k. P comes from the accumulators of Q K^T, where a lane has keys
// 2t and 2t+1 of each tile of 8 keys, so k is laid over the keys as the lanes have them:
//   k 4t .. 4t+3         <-> keys 2t, 2t+1 (tile 0), 8 + 2t, 8 + 2t+1 (tile 1)
//   k 16 + 4t .. 4t+3    <-> the same of tiles 2 and 3: keys 16 + ..., 24 + ...
// Then P needs no shuffle, only rounding to FP8. V needs the same keys in the same order, for one
// dim: ldmatrix.trans of 8 keys x 16 dims gives a lane the codes
//   (key 2t, dim 2g) (key 2t, dim 2g+1) (key 2t+1, dim 2g) (key 2t+1, dim 2g+1)
// and a byte permute of the registers of two tiles picks the four keys of dim 2g, another those of
// dim 2g+1. Column n of one multiply is dim 16 b + 2 n, of the other dim 16 b + 2 n + 1: O's tiles
// 2 b and 2 b + 1.
#pragma once

#include "attention/e4m3_terms.hpp"
#include "attention/key_groups.hpp"

namespace fp8_sdpa::sm89 {

namespace groups = attention::key_groups;

/// kInput is the format of Q, K and V. P is the sum of kTerms E4M3 numbers: one is wrong by up to
/// 2^-4 of a weight, two by 2^-8.
template <Dtype kInput, int kTerms>
struct Fp8Operands {
  /// Weights, at most 1, become at most 2^8 = 256: E4M3 reaches 448, and its smallest positive
  /// code, 2^-9, then stands for a weight of 2^-17. l carries the same factor, so that O / l
  /// cancels it.
  static constexpr int kLog2Scale = 8;
  static constexpr gpu::Fp8 kFormat = kInput == Dtype::kE4M3 ? gpu::Fp8::kE4M3 : gpu::Fp8::kE5M2;

  /// A operands of Q, one per 32 dims.
  struct Queries {
    std::uint32_t a[groups::kChunksPerRow / 2][4];

    GPU_FN explicit Queries(const groups::QueryCodes& q) {
#pragma unroll
      for (int i = 0; i < groups::kChunksPerRow * 2; ++i) {
        a[i / 4][i % 4] = q.codes[i / 4 * 2 + i % 4 / 2][i % 2];
      }
    }
  };

  GPU_FN static void scores(const Queries& q, const groups::CodeTile& k,
                            float (&s)[groups::kTilesS][4]) {
    const int lane = gpu::lane_idx();
#pragma unroll
    for (int j = 0; j < groups::kTilesS; ++j) {
      std::uint32_t codes[groups::kChunksPerRow];  // keys 8 j .. 8 j + 7, all dims
      gpu::ldmatrix_x4(codes, k.at(8 * j + lane % 8, lane / 8 * attention::kChunk));
#pragma unroll
      for (int i = 0; i < groups::kChunksPerRow / 2; ++i) {
        gpu::mma_m16n8k32<kFormat, kFormat>(s[j], q.a[i], {codes[2 * i], codes[2 * i + 1]});
      }
    }
  }

  /// The products of a step are summed apart and added to O in fp32 registers: Ada's tensor cores
  /// keep about 13 fractional bits, too few to carry O over thousands of keys. It costs nothing,
  /// because the rescale then is the multiply of that same FMA.
  GPU_FN static void accumulate(const float (&p)[groups::kTilesS][4], const groups::CodeTile& v,
                                const float (&rescale)[2], float (&o)[groups::kTilesO][4]) {
    const int lane = gpu::lane_idx();
    std::uint32_t a[kTerms][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&first)[4] = p[i / 2 * 2];  // of two tiles of 8 keys, row g + 8 h
      const float(&second)[4] = p[i / 2 * 2 + 1];
      const int h = i % 2;
      float weights[4] = {first[2 * h], first[2 * h + 1], second[2 * h], second[2 * h + 1]};
#pragma unroll
      for (int term = 0; term < kTerms; ++term) a[term][i] = attention::take_term(weights);
    }
#pragma unroll
    for (int chunk = 0; chunk < groups::kChunksPerRow; ++chunk) {
      std::uint32_t codes[4];  // keys 8 i .. 8 i + 7 of the chunk's dims
      gpu::ldmatrix_x4_trans(codes, v.at(lane, chunk * attention::kChunk));
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const std::uint32_t keys_of_dim = odd == 0 ? 0x6420 : 0x7531;
        float products[4] = {};
        const std::uint32_t b[2] = {gpu::prmt(codes[0], codes[1], keys_of_dim),
                                    gpu::prmt(codes[2], codes[3], keys_of_dim)};
#pragma unroll
        for (int term = kTerms - 1; term >= 0; --term) {  // the smallest first
          gpu::mma_m16n8k32<gpu::Fp8::kE4M3, kFormat>(products, a[term], b);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& sum = o[2 * chunk + odd][i];
          sum = gpu::fma(sum, rescale[i / 2], products[i]);
        }
      }
    }
  }
};

}  // namespace fp8_sdpa::sm89
