// Stage C: FP8 attention forward for Ada-class GPUs (sm_80 and newer).
// FlashAttention-2 (arXiv 2307.08691), Algorithm 1.
//
// One block computes one tile of kTileM query rows of one (batch, head), over all keys, kTileN at
// a time:
//
//   Q <- half(q codes)                                        (tile_m, head_dim), once
//   U <- 0, m <- -inf, l <- 0
//   for each KV tile t:
//     K, V <- half(codes), zero past seq_kv                   (tile_n, head_dim)
//     S <- Q K^T, fp32                                        (tile_m, tile_n), tensor cores
//     S <- S * descale_q * descale_k * softmax_scale * log2(e), -inf past seq_kv
//     m' <- max(m, rowmax S);  P <- exp2(S - m');  a <- exp2(m - m')
//     l <- a l + rowsum P;  m <- m'
//     U <- a U + P V                                          (tile_m, head_dim)
//   O <- U * descale_v / l;  LSE <- (m + log2 l) ln 2
//
// Data: global FP8 -> (staging, cp.async) -> half in shared memory -> tensor cores -> S, P, U in
// shared memory -> global.
//
// Without WARP_SPEC all threads do everything, between barriers of the whole block:
//
// barrier       | all threads arrive when                | and may then
// --------------|----------------------------------------|-------------------------------------
// tile_ready    | own copies of tile t landed; P V and   | read staging t; overwrite K, V and
//               | dequantisation of t - 1 are done       | staging t - 1
// kv_ready      | own part of K and V (and Q) is half    | read Q, K, V
// scores_ready  | own fragment of S is stored            | read S
// weights_ready | own part of P, a and l is stored       | read P, a, l; write U
// output_ready  | own part of U is complete              | read U
//
// With WARP_SPEC a producer warp copies and dequantises tile t + 1 while four consumer warps
// compute on tile t, through two buffers of K and V. Tile t is in buffer t % 2, phase t / 2:
//
// barrier       | kind     | arrive, count  | wait      | means
// --------------|----------|----------------|-----------|------------------------------------
// full[buffer]  | mbarrier | all, 160       | consumers | the tile is half in shared memory;
//               |          |                |           | every consumer has finished the tile
//               |          |                |           | before: S and P may be overwritten
// empty[buffer] | mbarrier | consumers, 128 | producer  | P V of the tile in it is done
// consumers     | named    | consumers, 128 | consumers | scores_ready, weights_ready,
//               |          |                |           | output_ready as above
//
// Rows past seq_q compute on zeros and are not stored. NaN in an attended code reaches the row's
// output: P, l and U carry it, and no max or clamp hides it.
#pragma once

#include "attention/phase_log.hpp"
#include "gpu/gpu.hpp"
#include "stage_c/accumulate.cuh"
#include "stage_c/debug_print.hpp"
#include "stage_c/load.cuh"
#include "stage_c/scores.cuh"
#include "stage_c/shared.cuh"
#include "stage_c/softmax.cuh"
#include "stage_c/store.cuh"

namespace fp8_sdpa::stage_c {

template <class Tag>
struct Kernel {
  using Params = attention::ParamsOf<attention::Logged<Tag>>;
  using Shared = stage_c::Shared<Tag>;
  static constexpr Toggles kToggles = Tag::kToggles;
  static constexpr int kBuffers = Shared::kBuffers;
  static constexpr int kConsumers = stage_c::kThreads;
  static constexpr int kThreads = kConsumers + (kToggles.warp_spec ? gpu::kWarpSize : 0);
  static constexpr int kMinBlocks = kRegistersPerMultiprocessor / (kThreads * kMaxRegisters);
  static_assert(sizeof(Shared) <= kMaxSharedBytes);
  using Log = attention::PhaseLog<attention::Logged<Tag>, kThreads / gpu::kWarpSize>;
  using Phase = attention::Phase;

  static constexpr int kAmongConsumers = 1;  ///< a named barrier; 0 is the block's

  GPU_FN static void run(const Params& p, Shared& sm) {
    const Block block = attention::locate<kTileM>(p);
    const int tiles_n = (p.seq_kv + kTileN - 1) / kTileN;
    if constexpr (!kToggles.warp_spec) {
      compute(p, block, sm, tiles_n);
    } else {
      init_ring(sm);
      if (gpu::thread_idx() >= kConsumers) {
        produce(p, block, sm, tiles_n);
      } else {
        consume(p, block, sm, tiles_n);
      }
    }
  }

  GPU_FN static void init_ring(Shared& sm) {
    if (gpu::thread_idx() == 0) {
#pragma unroll
      for (int buffer = 0; buffer < kBuffers; ++buffer) {
        gpu::mbarrier_init(sm.ring.full[buffer], kThreads);
        gpu::mbarrier_init(sm.ring.empty[buffer], kConsumers);
      }
    }
    gpu::sync_block();  // ring_ready
  }
  /// Of the phase in which a tile is in its buffer.
  GPU_FN static int parity(int tile) { return tile / kBuffers % 2; }

  /// All threads: load, then compute, tile by tile.
  GPU_FN static void compute(const Params& p, const Block& block, Shared& sm, int tiles_n) {
    const int thread = gpu::thread_idx();
    attention::RowState state;  // of the row that this thread shares in softmax()
    Log log(p);
    log.mark(Phase::kKvPrefetch);
    if constexpr (kToggles.cp_async) prefetch_kv<kThreads>(p, block, sm, 0, thread);
    log.mark(Phase::kQLoad);
    if constexpr (kToggles.kv_lut) {
      attention::fill_dequantisation_table(sm.table, p.input, thread, kThreads);
    }
    load_q<kThreads>(p, block, sm, thread);
    clear_output<kThreads>(sm, thread);

    for (int tile = 0; tile < tiles_n; ++tile) {
      log.mark(Phase::kWait, tile);
      if constexpr (kToggles.cp_async) gpu::cp_async_wait<0>();
      gpu::sync_block();  // tile_ready
      log.mark(Phase::kKvPrefetch, tile);
      if constexpr (kToggles.cp_async) {
        if (tile + 1 < tiles_n) prefetch_kv<kThreads>(p, block, sm, tile + 1, thread);
      }
      log.mark(Phase::kDequant, tile);
      load_kv<kThreads>(p, block, sm, tile, thread);
      log.mark(Phase::kWait, tile);
      gpu::sync_block();  // kv_ready
      log.mark(Phase::kQk, tile);
      scores(sm, 0);
      log.mark(Phase::kWait, tile);
      gpu::sync_block();  // scores_ready
      debug_print_scores(p, block, sm, tile, SyncBlock{});
      log.mark(Phase::kSoftmax, tile);
      softmax(p, block, sm, tile, state);
      log.mark(Phase::kWait, tile);
      gpu::sync_block();  // weights_ready
      log.mark(Phase::kPv, tile);
      accumulate(sm, 0);
      debug_print_state(p, block, sm, tile, SyncBlock{});
    }
    log.mark(Phase::kWait);
    gpu::sync_block();  // output_ready
    log.mark(Phase::kStoreO);
    store<kThreads>(p, block, sm, thread);
    log.mark(Phase::kEnd);
  }

  /// The producer warp: FP8 to staging one tile ahead, staging to halves when a buffer is empty.
  GPU_FN static void produce(const Params& p, const Block& block, Shared& sm, int tiles_n) {
    const int lane = gpu::lane_idx();
    Log log(p);
    log.mark(Phase::kKvPrefetch);
    prefetch_kv<gpu::kWarpSize>(p, block, sm, 0, lane);
    if constexpr (kToggles.kv_lut) {
      attention::fill_dequantisation_table(sm.table, p.input, lane, gpu::kWarpSize);
      gpu::sync_warp();  // every lane reads the whole table
    }
    for (int tile = 0; tile < tiles_n; ++tile) {
      log.mark(Phase::kKvPrefetch, tile);
      if (tile + 1 < tiles_n) {
        prefetch_kv<gpu::kWarpSize>(p, block, sm, tile + 1, lane);
        gpu::cp_async_wait<1>();
      } else {
        gpu::cp_async_wait<0>();
      }
      log.mark(Phase::kWait, tile);
      const int buffer = tile % kBuffers;
      if (tile >= kBuffers) gpu::mbarrier_wait(sm.ring.empty[buffer], parity(tile - kBuffers));
      log.mark(Phase::kDequant, tile);
      load_kv<gpu::kWarpSize>(p, block, sm, tile, lane);
      gpu::mbarrier_arrive(sm.ring.full[buffer]);
    }
    log.mark(Phase::kEnd);
  }

  /// The consumer warps: S, softmax and P V of each tile as its buffer fills.
  GPU_FN static void consume(const Params& p, const Block& block, Shared& sm, int tiles_n) {
    const int thread = gpu::thread_idx();
    attention::RowState state;
    Log log(p);
    log.mark(Phase::kQLoad);
    load_q<kConsumers>(p, block, sm, thread);
    clear_output<kConsumers>(sm, thread);

    for (int tile = 0; tile < tiles_n; ++tile) {
      const int buffer = tile % kBuffers;
      log.mark(Phase::kWait, tile);
      gpu::mbarrier_arrive(sm.ring.full[buffer]);
      gpu::mbarrier_wait(sm.ring.full[buffer], parity(tile));
      log.mark(Phase::kQk, tile);
      scores(sm, buffer);
      log.mark(Phase::kWait, tile);
      sync_consumers();  // scores_ready
      debug_print_scores(p, block, sm, tile, sync_consumers);
      log.mark(Phase::kSoftmax, tile);
      softmax(p, block, sm, tile, state);
      log.mark(Phase::kWait, tile);
      sync_consumers();  // weights_ready
      log.mark(Phase::kPv, tile);
      accumulate(sm, buffer);
      gpu::mbarrier_arrive(sm.ring.empty[buffer]);
      debug_print_state(p, block, sm, tile, sync_consumers);
    }
    log.mark(Phase::kWait);
    sync_consumers();  // output_ready
    log.mark(Phase::kStoreO);
    store<kConsumers>(p, block, sm, thread);
    log.mark(Phase::kEnd);
  }

  GPU_FN static void sync_consumers() { gpu::named_barrier_sync(kAmongConsumers, kConsumers); }
};

}  // namespace fp8_sdpa::stage_c
