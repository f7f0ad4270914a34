// The producer warpgroup: one thread issues TMA, three warps bring V into the order of P V
// (turn_values.cuh). A row-major V lands in a buffer of its own and is turned from there; a V that
// comes transposed lands in its place. Where a kernel before this one has turned V
// (prepare_values.cuh), its tiles are only copied.
#pragma once

#include "sm90/loads.cuh"
#include "sm90/turn_values.cuh"

namespace fp8_sdpa::sm90 {

/// The thread that issues all loads, in the order in which consumers want them.
template <class T>
struct Loader {
  static constexpr int kLandings = Shared<T>::kLandings;
  const Params& p;
  Shared<T>& sm;
  unsigned tiles_before = 0;  ///< of earlier items
  unsigned items_before = 0;  ///< with keys
  unsigned item_start = 0;    ///< tiles before the last of those

  GPU_FN void run() {
    for_each_piece<T>(p, [this](int, const Piece& piece) { load(locate<T>(p, piece)); });
  }

 private:
  GPU_FN void load(const Work& work) {
    if (work.tiles == 0) return;
    load_queries(work);
    const MapPlace k_at = place(p.k_steps, work.kv_head, work.batch);
    const MapPlace v_at = place(p.v_steps, work.kv_head, work.batch);
    for (int tile = work.last_tile; tile >= work.first_tile;
         tile -= T::kClusterBlocks, ++tiles_before) {
      const int slot = slot_of<T::kStages>(tiles_before);
      gpu::mbarrier_wait(sm.key_empty[slot], empty_parity<T::kStages>(tiles_before));
      gpu::mbarrier_arrive_expect_tx(sm.key_full[slot], sizeof(sm.keys[0]));
      load_rows(sm.keys[slot], p.k, sm.key_full[slot], tile * T::kTileN, k_at);
      if constexpr (T::kConfig.prepared_values) {
        load_prepared(work, tile);
      } else if (p.v_transposed) {
        load_transposed(tile, v_at);
      } else {
        load_values(tile, v_at);
      }
    }
  }

  GPU_FN void load_queries(const Work& work) {
    wait_for_queries(T::kQueryStages == 1 ? tiles_before : item_start);
    item_start = tiles_before;
    const int slot = slot_of<T::kQueryStages>(items_before++);
    gpu::mbarrier_arrive_expect_tx(sm.query_full[slot], sizeof(sm.queries[0]));
    load_rows(sm.queries[slot], p.q, sm.query_full[slot], work.first_row,
              place(p.q_steps, work.head, work.batch));
  }
  /// Nobody reads Q of the item whose tiles end at `end` any more: its last tiles' keys have been
  /// released, which each warpgroup does after its last scores.
  GPU_FN void wait_for_queries(unsigned end) {
#pragma unroll
    for (unsigned i = 1; i <= T::kKeyGroups; ++i) {
      const unsigned last = end - i;
      // None, or waited for already, to fill its slot anew.
      if (i > end || tiles_before - last > T::kStages) continue;
      gpu::mbarrier_wait(sm.key_empty[slot_of<T::kStages>(last)], full_parity<T::kStages>(last));
    }
  }
  GPU_FN void load_values(int tile, const MapPlace& at) {
    const int landing = slot_of<kLandings>(tiles_before);
    gpu::mbarrier_wait(sm.landing_empty[landing], empty_parity<kLandings>(tiles_before));
    gpu::mbarrier_arrive_expect_tx(sm.landing_full[landing], sizeof(sm.landing[0]));
    load_rows(sm.landing[landing], p.v, sm.landing_full[landing], tile * T::kTileN, at);
  }
  GPU_FN void load_prepared(const Work& work, int tile) {
    using Values = typename Shared<T>::Values;
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    gpu::mbarrier_arrive_expect_tx(sm.value_full[slot], sizeof(Values::bytes));
    gpu::bulk_load(
        sm.values[slot].bytes,
        prepared_tile<T>(p.values, p.seq_kv, work.batch * p.heads_kv + work.kv_head, tile),
        sizeof(Values::bytes), sm.value_full[slot]);
  }
  GPU_FN void load_transposed(int tile, const MapPlace& at) {
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    gpu::MBarrier& full = sm.landing_full[slot];
    gpu::mbarrier_arrive_expect_tx(full, T::kHeadDim * T::kTileN);
    load_transposed_values(sm.values[slot], p.v, full, tile * T::kTileN, 0, at);
  }
};

/// A warp that brings V into its place; `warp` counts the transposers.
template <class T>
struct Transposer {
  static constexpr int kLandings = Shared<T>::kLandings;
  const Params& p;
  Shared<T>& sm;
  int warp;
  unsigned position = 0;

  GPU_FN void run() {
    for_each_piece<T>(p, [this](int, const Piece& piece) {
      const unsigned end = position + static_cast<unsigned>(locate<T>(p, piece).tiles);
      for (; position != end; ++position) {
        if (p.v_transposed) {
          rearrange_in_place();
        } else {
          transpose_tile();
        }
      }
    });
  }

 private:
  // With three consumer warpgroups or more, a producer has no registers for two.
  static constexpr int kTogether = T::kTileN % 64 == 0 && T::kConsumers < 3 ? 2 : 1;
  using Turner =
      ValueTurner<typename Shared<T>::Keys, typename Shared<T>::Values, kTogether, T::kTransposers>;

  GPU_FN Turner turner() const { return {sm.zero, warp}; }
  GPU_FN void transpose_tile() {
    const int slot = slot_of<T::kStages>(position);
    const int landing = slot_of<kLandings>(position);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(position));
    gpu::mbarrier_wait(sm.landing_full[landing], full_parity<kLandings>(position));
    turner().transpose(sm.landing[landing], sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) {
      gpu::mbarrier_arrive(sm.value_full[slot]);
      gpu::mbarrier_arrive(sm.landing_empty[landing]);
    }
  }
  GPU_FN void rearrange_in_place() {
    const int slot = slot_of<T::kStages>(position);
    gpu::mbarrier_wait(sm.landing_full[slot], full_parity<T::kStages>(position));
    turner().interleave(sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(sm.value_full[slot]);
  }
};

}  // namespace fp8_sdpa::sm90
