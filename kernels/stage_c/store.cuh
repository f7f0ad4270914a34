// Stage C's epilogue: O = U * descale_v / l, LSE = (m + log2 l) ln 2, for the rows that exist.
#pragma once

#include "attention/output.hpp"
#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// Writes the block's rows of O, 16 bytes at a time, and of LSE.
template <int kThreadsOf, class Tag>
GPU_FN void store(const Params& p, const Block& block, const Shared<Tag>& sm, int thread) {
  constexpr int kChunk = 8;
  constexpr int kChunksPerRow = kHeadDim / kChunk;
#pragma unroll
  for (int pass = 0; pass < kTileM * kChunksPerRow / kThreadsOf; ++pass) {
    const int i = thread + pass * kThreadsOf;
    const int r = i / kChunksPerRow;
    const int col = i % kChunksPerRow * kChunk;
    const int row = block.first_row + r;
    if (row >= p.seq_q) return;  // the rows of a thread ascend
    const float scale = attention::output_scale(sm.rows[r], block.v_descale);
    const float* u = sm.u.at(r, col);
    uint4 chunk;
    chunk.x = attention::pack_output<false>(u[0] * scale, u[1] * scale, p.output);
    chunk.y = attention::pack_output<false>(u[2] * scale, u[3] * scale, p.output);
    chunk.z = attention::pack_output<false>(u[4] * scale, u[5] * scale, p.output);
    chunk.w = attention::pack_output<false>(u[6] * scale, u[7] * scale, p.output);
    // Half and bf16 have the same size, so one pointer type serves the address.
    auto* dst = attention::row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides, block.batch,
                                       block.head, row);
    *reinterpret_cast<uint4*>(dst + col) = chunk;
    if (p.lse != nullptr && col == 0) {
      *attention::lse_pointer(p, block, row) = attention::log_sum_exp(sm.rows[r]);
    }
  }
}

}  // namespace fp8_sdpa::stage_c
