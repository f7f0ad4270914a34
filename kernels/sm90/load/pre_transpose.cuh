// V into tiles of V^T in the workspace, by a kernel before the one that multiplies: where many
// blocks want the same keys, each tile is transposed once, and their shared memory and instruction
// slots are free of it.
//
// A block transposes up to 128 dims of a tile: TMA loads them, all warps transpose them
// (transpose_values.cuh), all threads copy them out, as they will lie in shared memory, swizzle and
// row of ones included. Neighbouring blocks have neighbouring heads of the same keys, which lie
// next to each other in a (batch, seq, head, dim) tensor.
#pragma once

#include "sm90/load/loads.cuh"
#include "sm90/load/transpose_values.cuh"

namespace fp8_sdpa::sm90 {

struct ValueParams {
  gpu::TensorMap v;
  MapSteps steps;
  attention::Divisor heads_kv;
  attention::Divisor tiles;  ///< of a (batch, KV head)
  int seq_kv;
  bool transposed;
  std::uint8_t* values;
};

template <class Tag>
struct PreTranspose {
  using T = Traits<Tag>;
  using Params = ValueParams;
  static constexpr int kDims = T::kUnitDims;
  static constexpr int kParts = T::kUnits;
  using Keys = Tile<T::kTileN, kDims>;
  using Values = Tile<kDims + T::kExtraRows, T::kTileN>;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kUsesPdl = true;

  struct Shared {
    Keys staging;
    Values part;
    gpu::MBarrier full;
    float zero;
  };

  GPU_FN static void run(const Params& p, Shared& sm) {
    const int thread = gpu::thread_idx();
    const int block = static_cast<int>(gpu::block_idx().x);
    const int part = block % kParts;
    const int batch_tile = attention::quotient(block / kParts, p.heads_kv);
    const int head = block / kParts - batch_tile * p.heads_kv.value;
    const int batch = attention::quotient(batch_tile, p.tiles);
    const int tile = batch_tile - batch * p.tiles.value;
    if (thread == 0) {
      gpu::mbarrier_init(sm.full, 1);
      gpu::fence_mbarrier_init();
      sm.zero = 0.0F;
      gpu::pdl_wait();
      gpu::pdl_launch_dependents();
      load(p, sm, place(p.steps, head, batch), tile * T::kTileN, part * kDims);
    }
    write_ones<kDims>(sm.part, thread, kThreads);
    gpu::sync_block();
    gpu::mbarrier_wait(sm.full, full_parity<1>(0));
    constexpr int kTogether = T::kTileN % 64 == 0 ? 2 : 1;
    const ValueTransposer<Keys, Values, kTogether, kWarps> transposer{sm.zero, gpu::warp_idx()};
    if (p.transposed) {
      transposer.interleave(sm.part, sm.part);
    } else {
      transposer.transpose(sm.staging, sm.part);
    }
    gpu::sync_block();
    const int batch_head = batch * p.heads_kv.value + head;
    copy_part<T>(sm.part, workspace_tile<T>(p.values, p.seq_kv, batch_head, tile), part, thread,
                 kThreads);
  }

 private:
  GPU_FN static void load(const Params& p, Shared& sm, const MapPlace& at, int key, int dim) {
    gpu::mbarrier_arrive_expect_tx(sm.full, kDims * T::kTileN);
    if (p.transposed) {
      load_transposed_values(sm.part, p.v, sm.full, key, dim, at);
    } else {
      static_assert(Keys::kPanels == 1);
      gpu::tma_load_4d(sm.staging.bytes[0], p.v, sm.full, dim, key, at.head, at.batch);
    }
  }
};

}  // namespace fp8_sdpa::sm90
