// Stage C's way of the FP8 codes from global memory to halves in shared memory.
#pragma once

#include "attention/dequantise.hpp"
#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// Work is dealt in chunks of 16 codes, one vector access: kChunksPerRow chunks a row.
inline constexpr int kChunkCodes = 16;
inline constexpr int kChunksPerRow = kHeadDim / kChunkCodes;
inline constexpr int kChunksPerTile = kTileN * kChunksPerRow;

template <class Tile>
GPU_FN void store_halves(Tile& tile, int row, int col, const attention::Halves16& halves) {
  const auto* pairs = reinterpret_cast<const uint4*>(halves.pairs);
  *reinterpret_cast<uint4*>(tile.at(row, col)) = pairs[0];
  *reinterpret_cast<uint4*>(tile.at(row, col + Tile::kChunk)) = pairs[1];
}

/// Q to half in shared memory, by kThreadsOf threads of which this is number `thread`. Rows past
/// seq_q are zero.
template <int kThreadsOf, class Tag>
GPU_FN void load_q(const Params& p, const Block& block, Shared<Tag>& sm, int thread) {
#pragma unroll
  for (int pass = 0; pass < kTileM * kChunksPerRow / kThreadsOf; ++pass) {
    const int i = thread + pass * kThreadsOf;
    const int row = i / kChunksPerRow;
    const int col = i % kChunksPerRow * kChunkCodes;
    attention::Codes16 codes{0, 0, 0, 0};
    if (block.first_row + row < p.seq_q) {
      codes = *reinterpret_cast<const attention::Codes16*>(
          attention::row_pointer(p.q, p.q_strides, block.batch, block.head, block.first_row + row) +
          col);
    }
    store_halves(sm.q, row, col, attention::dequantise(codes, p.input));
  }
}

/// Starts the copy of KV tile `tile` into its staging buffer, as one cp.async group. Rows past
/// seq_kv become zero.
template <int kThreadsOf, class Tag>
GPU_FN void prefetch_kv(const Params& p, const Block& block, Shared<Tag>& sm, int tile,
                        int thread) {
  const int stage = tile % kStages;
#pragma unroll
  for (int pass = 0; pass < kChunksPerTile / kThreadsOf; ++pass) {
    const int i = thread + pass * kThreadsOf;
    const int row = i / kChunksPerRow;
    const int col = i % kChunksPerRow * kChunkCodes;
    const int key = tile * kTileN + row;
    const bool there = key < p.seq_kv;
    const int src = there ? key : 0;  // a valid address, though nothing is read
    gpu::cp_async_16_zfill(
        &sm.staging.k[stage][row][col],
        attention::row_pointer(p.k, p.k_strides, block.batch, block.head, src) + col, there);
    gpu::cp_async_16_zfill(
        &sm.staging.v[stage][row][col],
        attention::row_pointer(p.v, p.v_strides, block.batch, block.head, src) + col, there);
  }
  gpu::cp_async_commit();
}

/// KV tile `tile` to halves in buffer tile % kBuffers: from staging (the chunks that this very
/// thread copied) or from global memory. Rows past seq_kv are zero.
template <int kThreadsOf, class Tag>
GPU_FN void load_kv(const Params& p, const Block& block, Shared<Tag>& sm, int tile, int thread) {
  constexpr Toggles kToggles = Tag::kToggles;
  const int buffer = tile % Shared<Tag>::kBuffers;
#pragma unroll
  for (int pass = 0; pass < kChunksPerTile / kThreadsOf; ++pass) {
    const int i = thread + pass * kThreadsOf;
    const int row = i / kChunksPerRow;
    const int col = i % kChunksPerRow * kChunkCodes;
    attention::Codes16 k{0, 0, 0, 0};
    attention::Codes16 v{0, 0, 0, 0};
    if constexpr (kToggles.cp_async) {
      k = *reinterpret_cast<const attention::Codes16*>(&sm.staging.k[tile % kStages][row][col]);
      v = *reinterpret_cast<const attention::Codes16*>(&sm.staging.v[tile % kStages][row][col]);
    } else if (const int key = tile * kTileN + row; key < p.seq_kv) {
      k = *reinterpret_cast<const attention::Codes16*>(
          attention::row_pointer(p.k, p.k_strides, block.batch, block.head, key) + col);
      v = *reinterpret_cast<const attention::Codes16*>(
          attention::row_pointer(p.v, p.v_strides, block.batch, block.head, key) + col);
    }
    if constexpr (kToggles.kv_lut) {
      store_halves(sm.k[buffer], row, col, attention::dequantise(k, sm.table));
      store_halves(sm.v[buffer], row, col, attention::dequantise(v, sm.table));
    } else {
      store_halves(sm.k[buffer], row, col, attention::dequantise(k, p.input));
      store_halves(sm.v[buffer], row, col, attention::dequantise(v, p.input));
    }
  }
}

}  // namespace fp8_sdpa::stage_c
