// V into tiles of V^T in the workspace, each once, by the blocks that want them: their shared
// memory and instruction slots are free of it from then on.
//
// A unit is up to 128 dims of a tile. The units of a (batch, KV head) are claimed in the order in
// which its first work tiles want them, by blocks that want that head next and have nothing to
// transpose: three warps of the producer warpgroup. TMA loads a unit while the one before it is
// transposed (transpose_values.cuh); they copy it out as it will lie in shared memory, swizzle and
// row of ones included, and say so. A loader waits for the units of a tile before it fetches them
// (producer.cuh). Nobody waits for a block that has not begun: a block claims the units of its
// heads until none is left, so that each is its own or some other's that runs.
//
// What they count in the workspace, UnitCounts, has a tag in each word: one without it counts
// nothing, whatever wrote it. The last warp to leave makes all words such that count nothing, for
// the plan's next launch.
#pragma once

#include "attention/tagged_count.hpp"
#include "sm90/load/loads.cuh"
#include "sm90/load/transpose_values.cuh"

namespace fp8_sdpa::sm90 {

/// One of the warps that transpose V for all.
template <class T>
struct UnitTransposer {
  static constexpr int kDims = T::kUnitDims;
  static constexpr int kThreads = T::kTransposers * gpu::kWarpSize;
  static constexpr int kBarrier = 8;
  using Keys = Tile<T::kTileN, kDims>;
  using Dims = Tile<kDims, T::kTileN>;  ///< of a V that comes transposed
  using TransposedUnit = Tile<kDims + T::kExtraRows, T::kTileN>;
  static_assert(sizeof(Keys) == sizeof(Dims));

  const Params& p;
  Shared<T>& sm;
  int warp;

  GPU_FN void run() {
    write_ones<kDims>(sm.unit.transposed, thread(), kThreads);
    gpu::pdl_wait();
    if (thread() == 0) {
      sm.unit.step = 0;
      sm.unit.batch_head = Unit::kNone;
      fetch(0);
    }
    for (unsigned nth = 0;; ++nth) {
      const int slot = slot_of<kSlots>(nth);
      meet();  // unit nth is known, and the one before it has been copied out
      if (nth > 0) announce_transposed(unit_at(nth - 1));
      const Unit& unit = unit_at(nth);  // read anew where it is used: registers are few
      if (unit.tile == Unit::kNone) break;
      if (thread() == 0) fetch(nth + 1);
      gpu::mbarrier_wait(sm.unit.staged[slot], full_parity<kSlots>(nth));
      transpose(sm.unit.staging[slot]);
      meet();  // it has been transposed
      copy_part<T>(sm.unit.transposed,
                   workspace_tile<T>(p.values, p.seq_kv, unit.batch_head, unit.tile), unit.part,
                   thread(), kThreads);
      gpu::fence_proxy_async_global();  // written by ordinary stores, to be read by bulk copies
    }
    leave_counts();
  }

 private:
  static constexpr int kSlots = UnitBuffers<T>::kSlots;

  GPU_FN int thread() const { return warp * gpu::kWarpSize + gpu::lane_idx(); }
  GPU_FN Unit& unit_at(unsigned nth) const {
    return sm.unit.units[slot_of<UnitBuffers<T>::kKnown>(nth)];
  }
  GPU_FN static void meet() { gpu::named_barrier_sync(kBarrier, kThreads); }
  GPU_FN void transpose(Keys& staging) const {
    // Plus 0, loaded: else what follows from the warp is kept from unit to unit, and spilled.
    const float zero = *static_cast<const volatile float*>(&sm.zero);
    const ValueTransposer<Keys, TransposedUnit, 1, T::kTransposers> transposer{
        sm.zero, warp + __builtin_bit_cast(int, zero)};
    if (p.v_transposed) {
      transposer.interleave(reinterpret_cast<Dims&>(staging), sm.unit.transposed);
    } else {
      transposer.transpose(staging, sm.unit.transposed);
    }
  }
  /// By two warps, while the first one claims: all wait for their answers at the same time.
  GPU_FN void announce_transposed(const Unit& unit) const {
    static_assert(T::kTransposers == 3);
    if (warp == 0 || gpu::lane_idx() != 0) return;
    const int tile = unit.batch_head * tiles_of_keys<T>(p) + unit.tile;
    attention::count_up(warp == 1 ? p.units.transposed + tile : p.units.all, no_units(p));
  }

  /// When this warp counts no unit any more, and, for the first one, the loader waits for none. The
  /// last warp of all blocks to come here leaves the words as the next launch wants them.
  GPU_FN void leave_counts() const {
    int last = 0;
    if (gpu::lane_idx() == 0) {
      if (warp == 0) gpu::mbarrier_wait(sm.all_loaded(), full_parity<1>(0));
      last = attention::count_up(p.units.left, no_units(p)) + 1 ==
             std::uint64_t{T::kTransposers} * gpu::grid_dim().x;
    }
    if (gpu::shfl(last, 0) == 0) return;
    gpu::sync_warp();  // what lane 0 has acquired, all have
    for (int i = gpu::lane_idx(); i < p.units.words; i += gpu::kWarpSize) {
      p.units.claimed[i] = no_units(p);
    }
  }

  /// Claims the next unit of this block and has it loaded.
  GPU_FN void fetch(unsigned nth) const {
    const int slot = slot_of<kSlots>(nth);
    Unit& unit = unit_at(nth);
    unit.tile = Unit::kNone;
    while (!claim(unit)) {
      if (!next_head()) return;
    }
    gpu::MBarrier& staged = sm.unit.staged[slot];
    gpu::mbarrier_arrive_expect_tx(staged, sizeof(Keys));
    const int batch_head = unit.batch_head;
    const int batch = batch_head / p.heads_kv;
    const MapPlace v_at = place(p.v_steps, batch_head - batch * p.heads_kv, batch);
    const int key = unit.tile * T::kTileN;
    const int dim = unit.part * kDims;
    if (p.v_transposed) {
      load_transposed_values(reinterpret_cast<Dims&>(sm.unit.staging[slot]), p.v, staged, key, dim,
                             v_at);
    } else {
      static_assert(Keys::kPanels == 1);
      gpu::tma_load_4d(sm.unit.staging[slot].bytes[0], p.v, staged, dim, key, v_at.head,
                       v_at.batch);
    }
  }
  GPU_FN bool claim(Unit& unit) const {
    const int batch_head = sm.unit.batch_head;
    if (batch_head == Unit::kNone) return false;
    const int tiles = tiles_of_keys<T>(p);
    // Relaxed: a claim tells nothing, and would wait for the stores of the unit before.
    std::uint64_t* const word = p.units.claimed + batch_head;
    const int nth =
        static_cast<int>(attention::counted(word, no_units(p), gpu::atomic_add_relaxed(word, 1)));
    if (nth >= tiles * T::kUnits) return false;
    const int tile = nth / T::kUnits;
    const int pass = attention::quotient(batch_head * p.group.value, p.pass_heads);
    const bool last_tile_first = !p.causal || lengths_fall(p, pass);
    unit = {batch_head, last_tile_first ? tiles - 1 - tile : tile, nth % T::kUnits};
    return true;
  }
  /// The head of this block's next tile range.
  GPU_FN bool next_head() const {
    const TileRange range = range_of<T>(p, sm.unit.step++);
    if (range.work_tile == TileRange::kNone) return false;
    const Work work = locate<T>(p, range);
    sm.unit.batch_head = work.batch * p.heads_kv + work.kv_head;
    return true;
  }
};

}  // namespace fp8_sdpa::sm90
