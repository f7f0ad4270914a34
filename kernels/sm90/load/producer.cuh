// The producer warpgroup: one thread issues TMA, three warps bring V into the order of P V
// (turn_values.cuh). A row-major V lands in a buffer of its own and is turned from there; a V that
// comes transposed lands in its place. Where a kernel before this one has turned V
// (prepare_values.cuh), or blocks do so for each other (turn_once.cuh), its tiles are only copied.
#pragma once

#include "sm90/load/loads.cuh"
#include "sm90/load/turn_values.cuh"

namespace fp8_sdpa::sm90 {

/// The thread that issues all loads, in the order in which consumers want them.
template <class T>
struct Loader {
  const Params& p;
  Shared<T>& sm;
  unsigned tiles_before = 0;                     ///< of earlier items
  unsigned items_before = 0;                     ///< with keys
  unsigned item_start = 0;                       ///< tiles before the last of those
  RingPlace<Shared<T>::kLandings> landing = {};  ///< of the next tile of V
  bool all_turned = false;                       ///< with Config::once: V

  GPU_FN void run(NextWork<T> next) {
    for (; next.any(); next.find(p, next.step + 1)) load(next.work);
    if constexpr (!T::kConfig.prepared_values) stop_transposers();
    if constexpr (T::kConfig.once) gpu::mbarrier_arrive(sm.all_loaded());
  }

 private:
  GPU_FN void load(const Work& work) {
    gpu::wait_for_earlier_kernels();
    if (work.tiles == 0) return;
    load_queries(work);
    const MapPlace k_at = place(p.k_steps, work.kv_head, work.batch);
    const MapPlace v_at = place(p.v_steps, work.kv_head, work.batch);
    for (int tile = work.last_tile; tile >= work.first_tile;
         tile -= T::kClusterBlocks, ++tiles_before) {
      const int slot = slot_of<T::kStages>(tiles_before);
      // V first: it is turned while K is on its way.
      if constexpr (!T::kConfig.prepared_values) {
        if (!p.v_transposed) load_values(tile, v_at);
      }
      gpu::mbarrier_wait(sm.key_empty[slot], empty_parity<T::kStages>(tiles_before));
      gpu::mbarrier_arrive_expect_tx(sm.key_full[slot], sizeof(sm.keys[0]));
      load_rows(sm.keys[slot], p.k, sm.key_full[slot], tile * T::kTileN, k_at);
      if constexpr (T::kConfig.prepared_values) {
        load_prepared(work, tile);
      } else if (p.v_transposed) {
        load_transposed(tile, v_at);
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
    gpu::MBarrier& full = sm.landing_full[landing.slot];
    gpu::mbarrier_wait(sm.landing_empty[landing.slot], landing.full_parity ^ 1);
    gpu::mbarrier_arrive_expect_tx(full, sizeof(sm.landing[0]));
    load_rows(sm.landing[landing.slot], p.v, full, tile * T::kTileN >> p.v_pairs, at);
    landing.next();
  }
  /// In place of a tile, word that there is no other: to each of those that wait for one.
  GPU_FN void stop_transposers() {
    if (p.v_transposed) {
      const int slot = slot_of<T::kStages>(tiles_before);
      gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
      stop(slot);
      return;
    }
    constexpr int kWaiting = T::kConfig.warp_per_tile ? T::kTransposers : 1;
    for (int i = 0; i < kWaiting; ++i, landing.next()) {
      gpu::mbarrier_wait(sm.landing_empty[landing.slot], landing.full_parity ^ 1);
      stop(landing.slot);
    }
  }
  GPU_FN void stop(int slot) {
    sm.no_tile[slot] = true;
    gpu::mbarrier_arrive(sm.landing_full[slot]);
  }
  GPU_FN void load_prepared(const Work& work, int tile) {
    using Values = typename Shared<T>::Values;
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    if constexpr (T::kConfig.once) wait_for_units(work, tile);
    gpu::mbarrier_arrive_expect_tx(sm.value_full[slot], sizeof(Values::bytes));
    gpu::bulk_load(
        sm.values[slot].bytes,
        prepared_tile<T>(p.values, p.seq_kv, work.batch * p.heads_kv + work.kv_head, tile),
        sizeof(Values::bytes), sm.value_full[slot]);
  }
  /// Until the tile has been turned: by whom, nobody knows. Once all of V has been, that is known.
  GPU_FN void wait_for_units(const Work& work, int tile) {
    if (all_turned) return;
    if (tile == work.last_tile) {
      all_turned = gpu::load_acquire(p.units.all) == no_units(p) + p.all_units;
    }
    if (!all_turned) {
      const int batch_head = work.batch * p.heads_kv + work.kv_head;
      gpu::wait_for_word(p.units.turned + batch_head * tiles_of_keys<T>(p) + tile,
                         no_units(p) + T::kUnits);
    }
    gpu::fence_proxy_async_global();  // others wrote it by ordinary stores, bulk copies read it
  }
  GPU_FN void load_transposed(int tile, const MapPlace& at) {
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    gpu::MBarrier& full = sm.landing_full[slot];
    gpu::mbarrier_arrive_expect_tx(full, T::kHeadDim * T::kTileN);
    load_transposed_values(sm.values[slot], p.v, full, tile * T::kTileN, 0, at);
  }
};

/// A warp that brings V into its place; `warp` counts the transposers. It has a part of each tile,
/// or, with warp_per_tile, every third tile, in a landing buffer of its own.
template <class T>
struct Transposer {
  static constexpr bool kAlone = T::kConfig.warp_per_tile;
  const Params& p;
  Shared<T>& sm;
  int warp;
  unsigned position = 0;
  int landing_parity = 0;  ///< with warp_per_tile

  GPU_FN void run() {
    // Of a slot that it fills before others, or with them: it says so behind a fence.
    if constexpr (T::kConfig.ones_column) {
      for (int slot = warp; slot < T::kStages; slot += T::kTransposers) {
        write_ones<T::kHeadDim>(sm.values[slot], gpu::lane_idx(), gpu::kWarpSize);
      }
    }
    if (p.v_transposed) {
      while (rearrange_in_place()) ++position;
    } else {
      if (kAlone) position = static_cast<unsigned>(warp);
      while (transpose_tile()) position += kAlone ? T::kTransposers : 1;
    }
  }

 private:
  // With three consumer warpgroups or more, a producer has no registers for two.
  static constexpr int kTogether = T::kTileN % 64 == 0 && T::kConsumers < 3 ? 2 : 1;
  template <int kWarps>
  using Turner =
      ValueTurner<typename Shared<T>::Keys, typename Shared<T>::Values, kTogether, kWarps>;

  /// Read by the lane that waits and arrives: an order that racecheck can follow.
  GPU_FN bool is_last(int slot) const {
    const int last = gpu::lane_idx() == 0 && sm.no_tile[slot] ? 1 : 0;
    return gpu::shfl(last, 0) != 0;
  }
  /// False: there was none left. A warp alone sees every third use of a slot of `values`: that the
  /// tile has landed tells it that all uses of the slot but the last are over.
  GPU_FN bool transpose_tile() {
    const int slot = slot_of<T::kStages>(position);
    int landing = warp;
    int parity = landing_parity;
    if constexpr (!kAlone) {
      landing = slot_of<Shared<T>::kLandings>(position);
      parity = full_parity<Shared<T>::kLandings>(position);
    }
    landing_parity ^= 1;
    gpu::mbarrier_wait(sm.landing_full[landing], parity);
    if (is_last(landing)) return false;
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(position));
    const Turner<kAlone ? 1 : T::kTransposers> turner{sm.zero, kAlone ? 0 : warp, p.v_pairs != 0};
    turner.transpose(sm.landing[landing], sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) {
      gpu::mbarrier_arrive(sm.value_full[slot]);
      gpu::mbarrier_arrive(sm.landing_empty[landing]);
    }
    return true;
  }
  GPU_FN bool rearrange_in_place() {
    const int slot = slot_of<T::kStages>(position);
    gpu::mbarrier_wait(sm.landing_full[slot], full_parity<T::kStages>(position));
    if (is_last(slot)) return false;
    Turner<T::kTransposers>{sm.zero, warp}.interleave(sm.values[slot], sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(sm.value_full[slot]);
    return true;
  }
};

}  // namespace fp8_sdpa::sm90
