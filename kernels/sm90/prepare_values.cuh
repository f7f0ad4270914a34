// V into tiles of V^T in the workspace, by a kernel before the one that multiplies: where many
// blocks want the same keys, each tile is turned once, and their shared memory and instruction
// slots are free of it.
//
// A block turns one tile: TMA loads it, all warps turn it (turn_values.cuh), all threads copy it
// out, as it will lie in shared memory, swizzle and column of ones included. Block 0 also zeroes
// the arrival counters of the kernel that follows.
#pragma once

#include "sm90/loads.cuh"
#include "sm90/turn_values.cuh"

namespace fp8_sdpa::sm90 {

struct ValueParams {
  gpu::TensorMap v;
  MapSteps steps;
  attention::Divisor tiles;  ///< of a (batch, KV head)
  attention::Divisor heads_kv;
  int seq_kv;
  bool transposed;
  std::uint8_t* values;
  std::uint32_t* arrivals;
  int arrivals_count;
};

template <class Tag, int kHeadDim, int kTerms = 1>
struct PrepareValues {
  using T = Traits<Tag, kHeadDim, kTerms>;
  using Params = ValueParams;
  using Keys = typename sm90::Shared<T>::Keys;
  using Values = typename sm90::Shared<T>::Values;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;

  struct Shared {
    Keys landing;
    Values tile;
    gpu::MBarrier full;
    float zero;
  };

  GPU_FN static void run(const Params& p, Shared& sm) {
    const int thread = gpu::thread_idx();
    const int block = static_cast<int>(gpu::block_idx().x);
    const int batch_head = attention::quotient(block, p.tiles);
    const int tile = block - batch_head * p.tiles.value;
    if (thread == 0) {
      gpu::mbarrier_init(sm.full, 1);
      gpu::fence_mbarrier_init();
      sm.zero = 0.0F;
      load(p, sm, batch_head, tile);
    }
    if constexpr (T::kConfig.ones_column) write_ones<T>(sm.tile, thread, kThreads);
    if (block == 0) {
      for (int i = thread; i < p.arrivals_count; i += kThreads) p.arrivals[i] = 0;
    }
    gpu::sync_block();
    gpu::mbarrier_wait(sm.full, full_parity<1>(0));
    const ValueTurner<T, kWarps> turner{sm.zero, gpu::warp_idx()};
    if (p.transposed) {
      turner.interleave(sm.tile);
    } else {
      turner.transpose(sm.landing, sm.tile);
    }
    gpu::sync_block();
    copy_out(sm.tile, prepared_tile<T>(p.values, p.seq_kv, batch_head, tile));
  }

 private:
  GPU_FN static void load(const Params& p, Shared& sm, int batch_head, int tile) {
    const int batch = attention::quotient(batch_head, p.heads_kv);
    const MapPlace at = place(p.steps, batch_head - batch * p.heads_kv.value, batch);
    gpu::mbarrier_arrive_expect_tx(sm.full, T::kHeadDim * T::kTileN);
    if (p.transposed) {
      load_transposed_values<T>(sm.tile, p.v, sm.full, tile, at);
    } else {
      load_rows(sm.landing, p.v, sm.full, tile * T::kTileN, at);
    }
  }
  GPU_FN static void copy_out(const Values& tile, std::uint8_t* to) {
    struct alignas(16) Chunk {
      std::uint32_t word[4];
    };
    constexpr int kChunks = sizeof(tile.bytes) / sizeof(Chunk);
    const auto* from = reinterpret_cast<const Chunk*>(tile.bytes);
    for (int i = gpu::thread_idx(); i < kChunks; i += kThreads) {
      reinterpret_cast<Chunk*>(to)[i] = from[i];
    }
  }
};

}  // namespace fp8_sdpa::sm90
