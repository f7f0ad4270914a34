// The place of a consumer warpgroup in the rings of K and V, and its waits there.
#pragma once

#include "sm90/work/work.cuh"

namespace fp8_sdpa::sm90 {

/// This warp, counted among the consumers'.
template <class T>
GPU_FN int consumer_warp() {
  const int warp = gpu::warp_idx();
  return (T::kFindsThreadAgain ? pinned(warp) : warp) - kWarpgroupWarps;
}
/// With Config::ragged: the warp's work tile.
template <class T>
GPU_FN auto& told_to_warp(Shared<T>& sm) {
  return sm.ragged.told[slot_of<RaggedState<T>::kTold>(sm.ragged.nth[consumer_warp<T>()])];
}

template <class T>
struct Rings {
  const Params& p;
  Shared<T>& sm;
  int row_group, kv_split;
  int warp;               ///< of the warpgroup
  unsigned position = 0;  ///< in the rings of K and V: of the tile whose scores are next
  int tile = 0;           ///< that tile, in its tile range; negative: none is left

  GPU_FN Rings(const Params& params, Shared<T>& shared, int group, int warp_of_group)
      : p(params),
        sm(shared),
        row_group(group % T::kRowGroups),
        kv_split(group / T::kRowGroups),
        warp(warp_of_group) {}

  GPU_FN static void release(gpu::MBarrier& empty) {
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(empty);
  }
  /// `at` is a position in the rings.
  GPU_FN void wait_keys(unsigned at) {
    gpu::mbarrier_wait(sm.key_full[slot_of<T::kStages>(at)], full_parity<T::kStages>(at));
  }
  GPU_FN void release_keys(unsigned at) { release(sm.key_empty[slot_of<T::kStages>(at)]); }
  GPU_FN void wait_values(unsigned at) {
    gpu::mbarrier_wait(sm.value_full[slot_of<T::kStages>(at)], full_parity<T::kStages>(at));
  }
  GPU_FN void release_values(unsigned at) { release(sm.value_empty[slot_of<T::kStages>(at)]); }
  GPU_FN void next() {
    position += T::kKvSplits;
    tile -= T::kKvSplits;
  }

  /// Ping-pong: the exponential unit goes round the warps that share a scheduler, one each a tile.
  GPU_FN void wait_ping_pong() {
    const int parity = full_parity<1>(position);
    gpu::mbarrier_wait(sm.ping_pong[row_group][warp], row_group == 0 ? parity ^ 1 : parity);
    gpu::sync_warp();  // a lane that lagged until the phase after the next would miss this one
  }
  /// After `known`, which follows from exponentials and has no sign bit, is known: that holds the
  /// compiler to the order.
  GPU_FN void signal_ping_pong(std::uint32_t known) {
    constexpr std::uint32_t kNever = 0x80000001;
    const bool never = known == kNever;
    const int next_group = row_group + 1 == T::kRowGroups ? 0 : row_group + 1;
    gpu::mbarrier_arrive_if(gpu::lane_idx() == 0, sm.ping_pong[next_group][warp + (never ? 1 : 0)]);
  }
};

}  // namespace fp8_sdpa::sm90
