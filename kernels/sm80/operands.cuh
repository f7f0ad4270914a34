// FP8 codes as operands of mma.sync m16n8k16, which takes halves: codes are converted in registers,
// on their way from ldmatrix to the tensor cores.
//
// ldmatrix moves pairs of codes, so that the operands come out permuted (g = lane / 4, t = lane %
// 4); the permutations cost nothing, because both factors of a product share them:
//
// Q K^T, dims of chunk c (16 c .. 16 c + 15) as the multiply's k. A lane gets four neighbouring
// dims:
//   k 2t, 2t+1      <-> dims 16 c + 4 t, + 1       the lower two codes
//   k 2t+8, 2t+9    <-> dims 16 c + 4 t + 2, + 3   the upper two
//
// P V, keys as k, in order. ldmatrix.trans of 8 keys x 16 dims gives a lane the codes
//   (key 2t, dim 2g) (key 2t, dim 2g+1) (key 2t+1, dim 2g) (key 2t+1, dim 2g+1)
// from which one byte permute makes the pairs of keys for dim 2g and for dim 2g+1. Column n of one
// multiply is dim 16 b + 2 n, of the other dim 16 b + 2 n + 1: O's tiles 2 b and 2 b + 1.
#pragma once

#include "attention/key_groups.hpp"
#include "attention/mma_fragment.hpp"

namespace fp8_sdpa::sm80 {

namespace groups = attention::key_groups;

/// kInput is the format of Q, K and V.
template <Dtype kInput>
struct HalfOperands {
  static constexpr int kLog2Scale = 0;
  /// Keys of one multiply.
  static constexpr int kDepth = 16;

  /// Four codes as halves: operand registers of the lower and of the upper two.
  struct Pairs {
    std::uint32_t low;
    std::uint32_t high;
  };
  GPU_FN static Pairs halves(std::uint32_t codes) {
    const gpu::Half4 four =
        kInput == Dtype::kE4M3 ? gpu::e4m3x4_to_half4(codes) : gpu::e5m2x4_to_half4(codes);
    return {attention::bits_of(four.low), attention::bits_of(four.high)};
  }

  /// A operands of Q, one per chunk of 16 dims.
  struct Queries {
    attention::FragmentA chunk[groups::kChunksPerRow];

    GPU_FN explicit Queries(const groups::QueryCodes& q) {
#pragma unroll
      for (int i = 0; i < groups::kChunksPerRow * 2; ++i) {
        const Pairs pairs = halves(q.codes[i / 2][i % 2]);
        chunk[i / 2].x[i % 2] = pairs.low;
        chunk[i / 2].x[i % 2 + 2] = pairs.high;
      }
    }
  };

  GPU_FN static void scores(const Queries& q, const groups::CodeTile& k,
                            float (&s)[groups::kTilesS][4]) {
    const int lane = gpu::lane_idx();
#pragma unroll
    for (int j = 0; j < groups::kTilesS; ++j) {
      std::uint32_t codes[groups::kChunksPerRow];  // keys 8 j .. 8 j + 7, all dims
      gpu::ldmatrix_x4(codes, k.at(8 * j + lane % 8, lane / 8 * groups::kChunk));
#pragma unroll
      for (int c = 0; c < groups::kChunksPerRow; ++c) {
        const Pairs b = halves(codes[c]);
        gpu::mma_m16n8k16(s[j], q.chunk[c].x, {b.low, b.high});
      }
    }
  }

  GPU_FN static void accumulate(const float (&p)[groups::kTilesS][4], const groups::CodeTile& v,
                                const float (&rescale)[2], float (&o)[groups::kTilesO][4]) {
#pragma unroll
    for (int i = 0; i < groups::kTilesO * 4; ++i) o[i / 4][i % 4] *= rescale[i % 4 / 2];
#pragma unroll
    for (int step = 0; step < groups::kWarpKeys / kDepth; ++step) {
      // The accumulators' layout is that of an A operand: tiles of 8 keys are its halves along k.
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&tile)[4] = p[2 * step + i / 2];
        a[i] = attention::bits_of(gpu::float2_to_half2(tile[i % 2 * 2], tile[i % 2 * 2 + 1]));
      }
#pragma unroll
      for (int pair = 0; pair < groups::kChunksPerRow / 2; ++pair) {
        accumulate_chunks(a, v, step * kDepth, pair * 2, o);
      }
    }
  }

 private:
  /// Dims of chunks `chunk` and `chunk` + 1, keys first_key .. first_key + 15.
  GPU_FN static void accumulate_chunks(const std::uint32_t (&a)[4], const groups::CodeTile& v,
                                       int first_key, int chunk, float (&o)[groups::kTilesO][4]) {
    const int lane = gpu::lane_idx();
    std::uint32_t codes[4];  // of 8 keys x 16 dims: keys + 0, + 8 of the chunk, and of the next
    gpu::ldmatrix_x4_trans(codes,
                           v.at(first_key + lane % 16, (chunk + lane / 16) * groups::kChunk));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      constexpr std::uint32_t kKeysByDim = 0x3120;  // bytes 0, 2 (dim 2g), then 1, 3 (dim 2g + 1)
      const Pairs low = halves(gpu::prmt(codes[2 * i], 0, kKeysByDim));       // keys 2t, 2t + 1
      const Pairs high = halves(gpu::prmt(codes[2 * i + 1], 0, kKeysByDim));  // 2t + 8, 2t + 9
      gpu::mma_m16n8k16(o[2 * (chunk + i)], a, {low.low, high.low});
      gpu::mma_m16n8k16(o[2 * (chunk + i) + 1], a, {low.high, high.high});
    }
  }
};

}  // namespace fp8_sdpa::sm80
