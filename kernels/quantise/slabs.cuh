// The quantiser of slabs of rows on Hopper: one pass, where a descale needs no other rows than a
// slab's (Granularity::kBlock), or none, because the caller gives it. Up to three tensors in one
// launch: Q, K and V of a problem.
//
// A thread block stays on its multiprocessor and goes through its share of the slabs of each
// tensor. Teams of warpgroups take turns at them (slab_team.cuh). A team has the slabs that come
// next loaded ahead, by TMA. It takes one into its registers, rotates it, finds the largest
// magnitude of each block of rows, and writes the codes. For smoothing, a team adds up the columns
// of a short head itself. Of a longer one a kernel before adds up the columns of shares of its
// rows; a team adds the shares up, in their order. Then it rotates the mean, and subtracts it from
// the slabs of that head.
#pragma once

#include "quantise/slab_team.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct Slabs {
  using Params = SlabsParams;
  using S = SlabBlock<kFrom, kDim>;
  using Shared = typename S::Shared;
  static constexpr int kThreads = S::kThreads;
  static constexpr int kMinBlocks = 1;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kUsesPdl = true;

  GPU_FN static void run(const Params& params, Shared& shared) {
    if (gpu::thread_idx() == 0) {
      for (auto& team : shared.teams) {
        for (gpu::MBarrier& full : team.full) gpu::mbarrier_init(full, 1);
      }
      gpu::fence_mbarrier_init();
      for (int i = 0; i < params.tensors; ++i) gpu::prefetch_tensor_map(params.of[i].map);
    }
    gpu::sync_block();
    // Sums are launched behind all else: behind them, only who needs them waits.
    if (!params.behind_sums) gpu::pdl_wait();
    gpu::pdl_launch_dependents();
    SlabTeam<kFrom, kDim> team{params, shared};
    if (team.thread() == 0) {
      for (int i = 0; i < S::kSlots; ++i) team.load(i, i);
    }
    if (params.rotates >= 0) {
      shared.matrix.fill(params.of[params.rotates].tensor, gpu::thread_idx(), kThreads);
      gpu::fence_proxy_async();
      gpu::sync_block();
    }
    team.run();
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
