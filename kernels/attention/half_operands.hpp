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

#include <cstdint>

#include "attention/mma_fragment.hpp"
#include "attention/query_codes.hpp"
#include "attention/shared_tile.hpp"
#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::attention {

/// Operands of one warp's 16 query rows and kKeys keys. kInput is the format of Q, K and V.
template <Dtype kInput, int kHeadDim, int kKeys>
struct HalfOperands {
  static constexpr int kLog2Scale = 0;
  /// Keys of one multiply.
  static constexpr int kDepth = 16;
  /// Accumulator tiles of 8 columns: of S, over keys; of O, over dims.
  static constexpr int kTilesS = kKeys / 8;
  static constexpr int kTilesO = kHeadDim / 8;
  static constexpr int kChunksPerRow = kHeadDim / kChunk;
  using CodeTile = SharedTile<std::uint8_t, kKeys, kHeadDim, Layout::kSwizzled>;

  /// Four codes as halves: operand registers of the lower and of the upper two.
  struct Pairs {
    std::uint32_t low;
    std::uint32_t high;
  };
  GPU_FN static Pairs halves(std::uint32_t codes) {
    const gpu::Half4 four =
        kInput == Dtype::kE4M3 ? gpu::e4m3x4_to_half4(codes) : gpu::e5m2x4_to_half4(codes);
    return {bits_of(four.low), bits_of(four.high)};
  }

  /// A operands of Q, one per chunk of 16 dims. Where O takes most registers, they are made of
  /// codes when they are used.
  struct Queries {
    static constexpr bool kKeepsCodes = kHeadDim > 128;
    QueryCodes<kKeepsCodes ? kHeadDim : kChunk> kept;
    FragmentA chunk[kKeepsCodes ? 1 : kChunksPerRow];

    GPU_FN explicit Queries(const QueryCodes<kHeadDim>& q) {
      if constexpr (kKeepsCodes) {
        kept = q;
      } else {
#pragma unroll
        for (int c = 0; c < kChunksPerRow; ++c) chunk[c] = operand_of(q.codes[c]);
      }
    }
    GPU_FN FragmentA operand(int c) const {
      if constexpr (kKeepsCodes) {
        return operand_of(kept.codes[c]);
      } else {
        return chunk[c];
      }
    }

   private:
    GPU_FN static FragmentA operand_of(const std::uint32_t (&codes)[2]) {
      FragmentA a;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Pairs pairs = halves(codes[h]);
        a.x[h] = pairs.low;
        a.x[h + 2] = pairs.high;
      }
      return a;
    }
  };

  /// s += Q K^T, of chunks kFirst to kEnd - 1.
  template <int kFirst = 0, int kEnd = kChunksPerRow>
  GPU_FN static void scores(const Queries& q, const CodeTile& k, float (&s)[kTilesS][4]) {
    constexpr int kChunksAtOnce = 4;
    const int lane = gpu::lane_idx();
#pragma unroll
    for (int first = kFirst; first < kEnd; first += kChunksAtOnce) {
      FragmentA a[kChunksAtOnce];
#pragma unroll
      for (int c = 0; c < kChunksAtOnce; ++c) a[c] = q.operand(first + c);
#pragma unroll
      for (int j = 0; j < kTilesS; ++j) {
        std::uint32_t codes[kChunksAtOnce];  // keys 8 j .. 8 j + 7, four chunks of dims
        gpu::ldmatrix_x4(codes, k.at(8 * j + lane % 8, (first + lane / 8) * kChunk));
#pragma unroll
        for (int c = 0; c < kChunksAtOnce; ++c) {
          const Pairs b = halves(codes[c]);
          gpu::mma_m16n8k16(s[j], a[c].x, {b.low, b.high});
        }
      }
    }
  }

  GPU_FN static void accumulate(const float (&p)[kTilesS][4], const CodeTile& v,
                                const float (&rescale)[2], float (&o)[kTilesO][4]) {
    // The accumulators' layout is that of an A operand: tiles of 8 keys are its halves along k.
    constexpr int kSteps = kKeys / kDepth;
    std::uint32_t a[kSteps][4];
#pragma unroll
    for (int i = 0; i < kSteps * 4; ++i) {
      const float(&tile)[4] = p[i / 2];
      a[i / 4][i % 4] = bits_of(gpu::float2_to_half2(tile[i % 2 * 2], tile[i % 2 * 2 + 1]));
    }
    // Later in the row the maximum seldom grows: then all factors are 1.
    if (gpu::any_lane(rescale[0] != 1.0F || rescale[1] != 1.0F)) {
#pragma unroll
      for (int i = 0; i < kTilesO * 4; ++i) o[i / 4][i % 4] *= rescale[i % 4 / 2];
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kChunksPerRow / 2; ++pair) {
        accumulate_chunks(a[step], v, step * kDepth, pair * 2, o);
      }
    }
  }

 private:
  /// Dims of chunks `chunk` and `chunk` + 1, keys first_key .. first_key + 15.
  GPU_FN static void accumulate_chunks(const std::uint32_t (&a)[4], const CodeTile& v,
                                       int first_key, int chunk, float (&o)[kTilesO][4]) {
    const int lane = gpu::lane_idx();
    std::uint32_t codes[4];  // of 8 keys x 16 dims: keys + 0, + 8 of the chunk, and of the next
    gpu::ldmatrix_x4_trans(codes, v.at(first_key + lane % 16, (chunk + lane / 16) * kChunk));
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

}  // namespace fp8_sdpa::attention
