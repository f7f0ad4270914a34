// Stage C: FP8 attention forward for Ada-class GPUs (sm_80 and newer). SPEC section 5;
// FlashAttention-2, Algorithm 1.
//
// One block computes one tile of kTileM query rows of one (batch, head), over all keys, kTileN at a
// time:
//
//   Q <- half(q codes)                                             (tile_m, head_dim), once
//   U <- 0, m <- -inf, l <- 0
//   for each KV tile t:
//     K, V <- half(codes)                                          (tile_n, head_dim), zero past
//     seq_kv S <- Q K^T                                                   (tile_m, tile_n), WMMA,
//     fp32 S <- S * descale_q * descale_k * softmax_scale * log2(e)     -inf past seq_kv m' <-
//     max(m, rowmax S);  P <- exp2(S - m');  a <- exp2(m - m') l <- a l + rowsum P;  m <- m' U <- a
//     U + P V                                               (tile_m, head_dim)
//   O <- U * descale_v / l;  LSE <- (m + log2 l) ln 2
//
// Data: global FP8 -> (staging, cp.async) -> half in shared memory -> WMMA -> S, P, U in shared
// memory -> global.
//
// barrier        | all threads arrive when                   | and may then
// ---------------|-------------------------------------------|----------------------------------------------
// tile_ready     | own copies of tile t landed; P V of t-1   | read staging t; overwrite K, V,
// staging t-1
//                | and dequantisation of t-1 are done        |
// kv_ready       | own part of K and V (and Q) is half       | read Q, K, V
// scores_ready   | own fragment of S is stored               | read S
// weights_ready  | own part of P, a and l is stored          | read P, a, l; write U
// output_ready   | own part of U is complete                 | read U
//
// Rows past seq_q compute on zeros and are not stored. NaN in an attended code reaches the row's
// output: P, l and U carry it, and no max or clamp hides it.
#pragma once

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
  using Params = stage_c::Params;
  using Shared = stage_c::Shared<Tag>;
  static constexpr Toggles kToggles = Tag::kToggles;
  static constexpr int kThreads = stage_c::kThreads;
  static constexpr int kMinBlocks = stage_c::kMinBlocks;
  static_assert(sizeof(Shared) <= kMaxSharedBytes);

  GPU_FN static void run(const Params& p, Shared& sm) {
    const Block block = locate(p);
    const int thread = gpu::thread_idx();
    const int tiles_n = (p.seq_kv + kTileN - 1) / kTileN;
    attention::RowState state;  // of the row that this thread shares in softmax()

    if constexpr (kToggles.cp_async) prefetch_kv(p, block, sm, 0, thread, kThreads);
    if constexpr (kToggles.kv_lut) {
      attention::fill_dequantisation_table(sm.table, p.input, thread, kThreads);
    }
    load_q(p, block, sm, thread, kThreads);
    clear_output(sm);

    for (int tile = 0; tile < tiles_n; ++tile) {
      if constexpr (kToggles.cp_async) gpu::cp_async_wait<0>();
      gpu::sync_block();  // tile_ready
      if constexpr (kToggles.cp_async) {
        if (tile + 1 < tiles_n) prefetch_kv(p, block, sm, tile + 1, thread, kThreads);
      }
      load_kv(p, block, sm, tile, thread, kThreads);
      gpu::sync_block();  // kv_ready
      scores(sm, tile % Shared::kBuffers);
      gpu::sync_block();  // scores_ready
      debug_print_scores(p, block, sm, tile);
      softmax(p, block, sm, tile, state);
      gpu::sync_block();  // weights_ready
      accumulate(sm, tile % Shared::kBuffers);
      debug_print_state(p, block, sm, tile);
    }
    gpu::sync_block();  // output_ready
    store(p, block, sm, thread, kThreads);
  }
};

}  // namespace fp8_sdpa::stage_c
