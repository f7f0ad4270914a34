// Stage C's epilogue: O = U * descale_v / l, LSE = (m + log2 l) ln 2, for the rows that exist.
#pragma once

#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// Two output elements as they lie in memory.
GPU_FN std::uint32_t pack(float low, float high, Dtype dtype) {
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

/// Writes the block's rows of O, 16 bytes at a time, and of LSE.
template <class Tag>
GPU_FN void store(const Params& p, const Block& block, const Shared<Tag>& sm, int thread,
                  int threads) {
  constexpr int kChunk = 8;
  constexpr int kChunksPerRow = kHeadDim / kChunk;
  for (int i = thread; i < kTileM * kChunksPerRow; i += threads) {
    const int r = i / kChunksPerRow;
    const int col = i % kChunksPerRow * kChunk;
    const int row = block.first_row + r;
    if (row >= p.seq_q) break;  // the rows of a thread ascend
    const float scale = attention::output_scale(sm.rows[r], block.v_descale);
    const float* u = sm.u.at(r, col);
    uint4 chunk;
    chunk.x = pack(u[0] * scale, u[1] * scale, p.output);
    chunk.y = pack(u[2] * scale, u[3] * scale, p.output);
    chunk.z = pack(u[4] * scale, u[5] * scale, p.output);
    chunk.w = pack(u[6] * scale, u[7] * scale, p.output);
    // Half and bf16 have the same size, so one pointer type serves the address.
    auto* dst = attention::row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides, block.batch,
                                       block.head, row);
    *reinterpret_cast<uint4*>(dst + col) = chunk;
    if (p.lse != nullptr && col == 0) {
      const std::int64_t bh = static_cast<std::int64_t>(block.batch) * p.heads + block.head;
      p.lse[bh * p.seq_q + row] = attention::log_sum_exp(sm.rows[r]);
    }
  }
}

}  // namespace fp8_sdpa::stage_c
