// The producer warpgroup: one thread issues TMA, three warps bring V into the order of P V
// (transpose_values.cuh). A row-major V lands in a buffer of its own and is transposed from there;
// a V that comes transposed lands in its place. Where a kernel before this one has transposed V
// (pre_transpose.cuh), or blocks do so for each other (shared_transpose.cuh), its tiles are only
// copied.
#pragma once

#include <type_traits>

#include "sm90/load/loads.cuh"
#include "sm90/load/transpose_values.cuh"

namespace fp8_sdpa::sm90 {

/// Nobody reads Q of the work tile whose tiles end at `end` any more: its last tiles' keys have
/// been released, which each warpgroup does after its last scores. `tiles_before` have been loaded.
template <class T>
GPU_FN void wait_for_queries(Shared<T>& sm, unsigned end, unsigned tiles_before) {
#pragma unroll
  for (unsigned i = 1; i <= T::kKvSplits; ++i) {
    const unsigned last = end - i;
    // None, or waited for already, to fill its slot anew.
    if (i > end || tiles_before - last > T::kStages) continue;
    gpu::mbarrier_wait(sm.key_empty[slot_of<T::kStages>(last)], full_parity<T::kStages>(last));
  }
}

/// The descales of a work tile's KV tiles, last tile first; those of the next are on their way
/// while K of a tile is waited for.
struct ScalesOfWork {
  std::int64_t first;  ///< of the head
  float key, value;    ///< of the next tile
  float value_before;  ///< of the tile before

  GPU_FN ScalesOfWork(const Params& p, const Work& work) : first(first_descale_kv(p, work)) {
    fetch(p, work.last_tile);
    value_before = value;
  }
  GPU_FN TileScales next(const Params& p, int tile) {
    if (p.kv_descales == 1) return {fabsf(key), 1.0F};
    TileScales scales{is_usable(key) ? key : NAN, NAN};
    // Who has added a tile whose descale is not usable has NaN already.
    if (is_usable(value)) scales.ratio = is_usable(value_before) ? value_before / value : 1.0F;
    value_before = value;
    if (tile > 0) fetch(p, tile - 1);
    return scales;
  }

 private:
  GPU_FN static bool is_usable(float descale) { return descale > 0.0F && descale < INFINITY; }
  GPU_FN void fetch(const Params& p, int tile) {
    const std::int64_t at = first + (p.kv_descales == 1 ? 0 : tile);
    key = p.descale_k[at];
    value = p.descale_v[at];
  }
};

/// The thread that issues all loads, in the order in which consumers want them.
template <class T>
struct Loader {
  const Params& p;
  Shared<T>& sm;
  unsigned tiles_before = 0;                           ///< of earlier work tiles
  unsigned work_tiles_before = 0;                      ///< with keys
  unsigned work_tile_start = 0;                        ///< tiles before the last of those
  RingPlace<Shared<T>::kStagingBuffers> staging = {};  ///< of the next tile of V
  bool all_transposed = false;                         ///< with Transpose::kOnceByBlocks: V

  GPU_FN void run(NextWork<T> next) {
    for (; next.any(); next.find(p, next.step + 1)) load(next.work);
    if constexpr (!T::kCopiesValues) stop_transposers();
    if constexpr (T::kTransposesOnce) gpu::mbarrier_arrive(sm.all_loaded());
  }

 private:
  GPU_FN void load(const Work& work) {
    gpu::pdl_wait();
    if (work.tiles == 0) return;
    load_queries(work);
    const MapPlace k_at = place(p.k_steps, work.kv_head, work.batch);
    const MapPlace v_at = place(p.v_steps, work.kv_head, work.batch);
    struct None {
      GPU_FN None(const Params& /*unused*/, const Work& /*unused*/) {}
    };
    [[maybe_unused]] std::conditional_t<T::kBlockScales, ScalesOfWork, None> scales(p, work);
    for (int tile = work.last_tile; tile >= work.first_tile; --tile, ++tiles_before) {
      const int slot = slot_of<T::kStages>(tiles_before);
      // V first: it is transposed while K is on its way.
      if constexpr (!T::kCopiesValues) {
        if (!p.v_transposed) load_values(tile, v_at);
      }
      gpu::mbarrier_wait(sm.key_empty[slot], empty_parity<T::kStages>(tiles_before));
      if constexpr (T::kBlockScales) {
        sm.scales.tiles[tiles_before % ScalesState<T>::kSlots] = scales.next(p, tile);
      }
      gpu::mbarrier_arrive_expect_tx(sm.key_full[slot], sizeof(sm.keys[0]));
      load_rows(sm.keys[slot], p.k, sm.key_full[slot], tile * T::kTileN, k_at);
      if constexpr (T::kInt8) {
        load_as_it_lies(tile, v_at);
      } else if constexpr (T::kVInWorkspace) {
        load_from_workspace(work, tile);
      } else if (p.v_transposed) {
        load_transposed(tile, v_at);
      }
    }
  }

  GPU_FN void load_queries(const Work& work) {
    wait_for_queries(sm, T::kQueryStages == 1 ? tiles_before : work_tile_start, tiles_before);
    work_tile_start = tiles_before;
    const int slot = slot_of<T::kQueryStages>(work_tiles_before++);
    gpu::mbarrier_arrive_expect_tx(sm.query_full[slot], sizeof(sm.queries[0]));
    if constexpr (T::kPacks) {
      load_packed(sm.queries[slot], p, sm.query_full[slot], work, 0);
    } else {
      load_rows(sm.queries[slot], p.q, sm.query_full[slot], work.first_row,
                place(p.q_steps, work.head, work.batch));
    }
  }
  GPU_FN void load_values(int tile, const MapPlace& at) {
    gpu::MBarrier& full = sm.staging_full[staging.slot];
    gpu::mbarrier_wait(sm.staging_empty[staging.slot], staging.full_parity ^ 1);
    gpu::mbarrier_arrive_expect_tx(full, sizeof(sm.staging[0]));
    load_rows(sm.staging[staging.slot], p.v, full, tile * T::kTileN >> p.v_pairs, at);
    staging.next();
  }
  GPU_FN void load_as_it_lies(int tile, const MapPlace& at) {
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    gpu::mbarrier_arrive_expect_tx(sm.value_full[slot], sizeof(sm.values[0]));
    load_rows(sm.values[slot], p.v, sm.value_full[slot], tile * T::kTileN, at);
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
    for (int i = 0; i < kWaiting; ++i, staging.next()) {
      gpu::mbarrier_wait(sm.staging_empty[staging.slot], staging.full_parity ^ 1);
      stop(staging.slot);
    }
  }
  GPU_FN void stop(int slot) {
    sm.no_tile[slot] = true;
    gpu::mbarrier_arrive(sm.staging_full[slot]);
  }
  GPU_FN void load_from_workspace(const Work& work, int tile) {
    using Values = typename Shared<T>::Values;
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    if constexpr (T::kTransposesOnce) wait_for_units(work, tile);
    gpu::mbarrier_arrive_expect_tx(sm.value_full[slot], sizeof(Values::bytes));
    gpu::bulk_load(
        sm.values[slot].bytes,
        workspace_tile<T>(p.values, p.seq_kv, work.batch * p.heads_kv + work.kv_head, tile),
        sizeof(Values::bytes), sm.value_full[slot]);
  }
  /// Until the tile has been transposed: by whom, nobody knows. Once all of V has been, that is
  /// known.
  GPU_FN void wait_for_units(const Work& work, int tile) {
    if (all_transposed) return;
    if (tile == work.last_tile) {
      all_transposed = gpu::load_acquire(p.units.all) == no_units(p) + p.all_units;
    }
    if (!all_transposed) {
      const int batch_head = work.batch * p.heads_kv + work.kv_head;
      gpu::wait_for_word(p.units.transposed + batch_head * tiles_of_keys<T>(p) + tile,
                         no_units(p) + T::kUnits);
    }
    gpu::fence_proxy_async_global();  // others wrote it by ordinary stores, bulk copies read it
  }
  GPU_FN void load_transposed(int tile, const MapPlace& at) {
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    gpu::MBarrier& full = sm.staging_full[slot];
    gpu::mbarrier_arrive_expect_tx(full, T::kHeadDim * T::kTileN);
    load_transposed_values(sm.values[slot], p.v, full, tile * T::kTileN, 0, at);
  }
};

/// A warp that brings V into its place; `warp` counts the transposers. It has a part of each tile,
/// or, with warp_per_tile, every third tile, in a staging buffer of its own.
template <class T>
struct Transposer {
  static constexpr bool kAlone = T::kConfig.warp_per_tile;
  const Params& p;
  Shared<T>& sm;
  int warp;
  unsigned position = 0;
  int staging_parity = 0;  ///< with warp_per_tile

  GPU_FN void run() {
    // Of a slot that it fills before others, or with them: it says so behind a fence.
    if constexpr (T::kConfig.mma_row_sums) {
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
  using TileTransposer =
      ValueTransposer<typename Shared<T>::Keys, typename Shared<T>::Values, kTogether, kWarps>;

  /// Read by the lane that waits and arrives: an order that racecheck can follow.
  GPU_FN bool is_last(int slot) const {
    const int last = gpu::lane_idx() == 0 && sm.no_tile[slot] ? 1 : 0;
    return gpu::shfl(last, 0) != 0;
  }
  /// False: there was none left. A warp alone sees every third use of a slot of `values`: that the
  /// tile has arrived tells it that all uses of the slot but the last are over.
  GPU_FN bool transpose_tile() {
    const int slot = slot_of<T::kStages>(position);
    int staging = warp;
    int parity = staging_parity;
    if constexpr (!kAlone) {
      staging = slot_of<Shared<T>::kStagingBuffers>(position);
      parity = full_parity<Shared<T>::kStagingBuffers>(position);
    }
    staging_parity ^= 1;
    gpu::mbarrier_wait(sm.staging_full[staging], parity);
    if (is_last(staging)) return false;
    const TileTransposer<kAlone ? 1 : T::kTransposers> transposer{sm.zero, kAlone ? 0 : warp,
                                                                  p.v_pairs != 0};
    if constexpr (T::kRagged) clear_behind_last_key(transposer, staging);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(position));
    transposer.transpose(sm.staging[staging], sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) {
      gpu::mbarrier_arrive(sm.value_full[slot]);
      gpu::mbarrier_arrive(sm.staging_empty[staging]);
    }
    return true;
  }
  /// What lies behind the last key of a sequence is somebody else's, and may be NaN.
  template <class TransposerOfTile>
  GPU_FN void clear_behind_last_key(const TransposerOfTile& transposer, int staging) const {
    const int own = gpu::lane_idx() == 0 ? sm.ragged.staged_keys[staging] : 0;
    const int keys = gpu::shfl(own, 0);
    if (keys >= T::kTileN) return;
    transposer.clear(sm.staging[staging], keys);
    gpu::sync_warp();
  }
  GPU_FN bool rearrange_in_place() {
    const int slot = slot_of<T::kStages>(position);
    gpu::mbarrier_wait(sm.staging_full[slot], full_parity<T::kStages>(position));
    if (is_last(slot)) return false;
    TileTransposer<T::kTransposers>{sm.zero, warp}.interleave(sm.values[slot], sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(sm.value_full[slot]);
    return true;
  }
};

}  // namespace fp8_sdpa::sm90
