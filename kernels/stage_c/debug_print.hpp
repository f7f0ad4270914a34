// DEBUG_PRINT: block 0 prints S, m, l and U of its first rows after each KV tile, the same lines on
// both backends, so that a person can diff a GPU run against a host run. A build option; off, these
// functions are empty.
#pragma once

#include "attention/online_softmax.hpp"
#include "gpu/gpu.hpp"
#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

#if defined(FP8_SDPA_DEBUG_PRINT) && FP8_SDPA_DEBUG_PRINT
inline constexpr bool kDebugPrint = true;
#else
inline constexpr bool kDebugPrint = false;
#endif
inline constexpr int kDebugRows = 2;

/// The barrier of those who compute, where that is the whole block.
struct SyncBlock {
  GPU_FN void operator()() const { gpu::sync_block(); }
};

template <class Tile>
GPU_FN void debug_print_row(const char* name, int tile, const Tile& values, int row, int count,
                            float scale) {
  gpu::print("tile=%d row=%d %s:", tile, row, name);
  for (int col = 0; col < count; ++col) {
    gpu::print(" %.4g", static_cast<double>(*values.at(row, col) * scale));
  }
  gpu::print("\n");
}

/// S of the tile, scaled as the softmax sees it (natural units). Called between scores and softmax.
template <class Tag, class Sync>
GPU_FN void debug_print_scores(const Params& p, const Block& block, const Shared<Tag>& sm, int tile,
                               Sync sync) {
  if constexpr (kDebugPrint) {
    if (gpu::block_idx().x == 0 && gpu::thread_idx() == 0) {
      for (int row = 0; row < kDebugRows && row < p.seq_q; ++row) {
        debug_print_row("S", tile, sm.s, row, kTileN, block.score_scale * attention::kLn2);
      }
    }
    sync();  // the softmax overwrites S
  }
}

/// m (natural units), l and U (unnormalised) after the tile.
template <class Tag, class Sync>
GPU_FN void debug_print_state(const Params& p, const Block& block, const Shared<Tag>& sm, int tile,
                              Sync sync) {
  if constexpr (kDebugPrint) {
    sync();  // U is complete
    if (gpu::block_idx().x == 0 && gpu::thread_idx() == 0) {
      for (int row = 0; row < kDebugRows && row < p.seq_q; ++row) {
        gpu::print("tile=%d row=%d m: %.4g l: %.4g\n", tile, row,
                   static_cast<double>(sm.rows[row].max * attention::kLn2),
                   static_cast<double>(sm.rows[row].sum));
        debug_print_row("U", tile, sm.u, row, kHeadDim, block.v_descale);
      }
    }
    sync();
  }
}

}  // namespace fp8_sdpa::stage_c
