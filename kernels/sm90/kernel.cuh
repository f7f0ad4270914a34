// FP8 attention forward for Hopper: TMA, mbarrier rings, wgmma on E4M3, specialised warpgroups.
//
// Persistent blocks take work items (a tile of query rows of a (batch, head)) in turn; the last
// ones are shared out by KV tiles, and whoever comes last merges their parts (schedule.hpp,
// work.cuh). Warpgroup 0 produces: one thread issues TMA for Q, K and V, three warps transpose V
// into the layout of P V (producer.cuh). The others consume: each has 64 query rows, S, P and O in
// registers, and online softmax (consumer.cuh, softmax.cuh); it writes its own rows (epilogue.cuh).
// Where warpgroups share rows (key_groups > 1), each takes every key_groups-th KV tile, and they
// merge O, m and l through shared memory; where the blocks of a cluster share rows, through that of
// both.
//
// Tiles and barriers: shared.cuh. Shapes and switches of the variants: config.hpp. Named barriers:
//
//   barrier        | who, threads                          | when
//   ---------------|---------------------------------------|------------------------------------
//   0 (block)      | all                                   | once: the mbarriers are initialised
//   1 + row group  | the warpgroups that share rows        | key_groups > 1: parts written, read
//   of the cluster | all consumers of both blocks          | cluster_blocks > 1: the same
//   8              | the warps that turn V for all         | Config::once: a unit is known, turned
#pragma once

#include "sm90/epilogue.cuh"
#include "sm90/producer.cuh"
#include "sm90/turn_once.cuh"

namespace fp8_sdpa::sm90 {

/// kTerms: 1, or 2 for few keys (config.hpp).
template <class Tag, int kHeadDim, int kTerms = 1>
struct Kernel {
  using T = Traits<Tag, kHeadDim, kTerms>;
  using Params = sm90::Params;
  using Shared = sm90::Shared<T>;
  static constexpr int kThreads = T::kConfig.threads();
  static constexpr int kMinBlocks = 1;
  static constexpr int kClusterBlocks = T::kClusterBlocks;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kStartsEarly = true;
  static constexpr RegisterShares kRegisters = register_shares(T::kConfig);

  static constexpr std::size_t kSharedLimit = 227 * 1024;  // that a block may opt in to
  static_assert(sizeof(Shared) <= kSharedLimit);

  GPU_FN static void run(const Params& p, Shared& sm) {
    initialise(p, sm);
    // From one lane, so that the compiler knows it is the same in all.
    const int warpgroup = gpu::shfl(gpu::warp_idx() / 4, 0);
    if (warpgroup == 0) {
      gpu::setmaxnreg_dec<kRegisters.producer>();
      produce(p, sm);
    } else {
      gpu::setmaxnreg_inc<kRegisters.consumer>();
      gpu::wait_for_earlier_kernels();
      consume(p, sm, warpgroup - 1);
    }
  }

 private:
  /// One thread of each of five warps has a part, so that none takes long: an mbarrier.init is some
  /// 60 clocks, and lanes of one warp would take turns at it.
  GPU_FN static void initialise(const Params& p, Shared& sm) {
    // A copy: the index itself would be kept in a register from here on.
    std::uint32_t thread[1] = {static_cast<std::uint32_t>(gpu::thread_idx())};
    gpu::pin_registers(thread);
    const int warp = gpu::shfl(static_cast<int>(thread[0]) / gpu::kWarpSize, 0);
    if (thread[0] % gpu::kWarpSize == 0) {
      if (warp < kWarpgroupWarps) {
        initialise_barriers(p, sm, warp);
        gpu::fence_mbarrier_init();
      } else if (warp == kWarpgroupWarps) {
        gpu::prefetch_tensor_map(p.q);
        gpu::prefetch_tensor_map(p.k);
        gpu::prefetch_tensor_map(p.v);
        for (bool& none : sm.no_tile) none = false;
        sm.zero = 0.0F;
      }
    }
    if constexpr (T::kConfig.ones_column && !T::kConfig.prepared_values) {
      for (auto& tile : sm.values) write_ones<kHeadDim>(tile, gpu::thread_idx(), kThreads);
      gpu::fence_proxy_async();
    }
    gpu::sync_block();
  }

  GPU_FN static void initialise_barriers(const Params& p, Shared& sm, int warp) {
    constexpr int kWarps = kWarpgroupWarps;
    const int transposers = T::kConfig.warp_per_tile && !p.v_transposed ? 1 : T::kTransposers;
#pragma unroll
    for (int i = 0; i < T::kStages; i += kWarps) {
      const int stage = i + warp;
      if (stage >= T::kStages) break;
      gpu::mbarrier_init(sm.key_full[stage], 1);
      gpu::mbarrier_init(sm.key_empty[stage], kWarps * T::kRowGroups);
      gpu::mbarrier_init(sm.value_full[stage], T::kConfig.prepared_values ? 1 : transposers);
      gpu::mbarrier_init(sm.value_empty[stage], kWarps * T::kRowGroups);
    }
#pragma unroll
    for (int i = 0; i < Shared::kLandingsFull; i += kWarps) {
      if (i + warp < Shared::kLandingsFull) gpu::mbarrier_init(sm.landing_full[i + warp], 1);
    }
    if (warp < Shared::kLandings) gpu::mbarrier_init(sm.landing_empty[warp], transposers);
    if (warp < T::kQueryStages) gpu::mbarrier_init(sm.query_full[warp], 1);
    if constexpr (T::kConfig.once) {
      if (warp < UnitBuffers<T>::kSlots) gpu::mbarrier_init(sm.unit.landed[warp], 1);
    }
    if constexpr (T::kConfig.exp_turns) {
      for (auto& group : sm.turn) gpu::mbarrier_init(group[warp], 1);
    }
  }

  GPU_FN static void produce(const Params& p, Shared& sm) {
    const int warp = gpu::warp_idx();
    if (warp == 0) {
      // elect_one: the compiler knows that one lane issues the loads, and keeps their coordinates
      // in uniform registers. 1 % at head_dim 256; at 64 and 128, 0.5 % slower.
      if (T::kHeadDim > 128 ? gpu::elect_one() : gpu::lane_idx() == 0) {
        gpu::let_next_kernel_start();
        Loader<T>{p, sm}.run();
      }
    } else if constexpr (T::kConfig.once) {
      UnitTurner<T>{p, sm, warp - 1}.run();
    } else if constexpr (!T::kConfig.prepared_values) {
      Transposer<T>{p, sm, warp - 1}.run();
    }
  }

  GPU_FN static void consume(const Params& p, Shared& sm, int group) {
    Consumer<T> consumer(p, sm, group);
    const Epilogue<T> epilogue{p, sm, consumer.row_group, consumer.key_group};
    unsigned tiles_before = 0;
    unsigned items_before = 0;
    for_each_piece<T>(p, [&](int step, const Piece& piece) {
      typename Consumer<T>::Outputs o;
      const Work work = locate<T>(p, piece);
      consumer.step = step;
      const float scale = consumer.scale_of(work);  // on its way while Q is
      if (work.tiles > 0) {
        // A warpgroup without tiles does not wait: Q of a later item may be there already.
        consumer.query_slot = slot_of<T::kQueryStages>(items_before);
        if (work.tiles > consumer.key_group) {
          gpu::mbarrier_wait(sm.query_full[consumer.query_slot],
                             full_parity<T::kQueryStages>(items_before));
        }
        ++items_before;
      }
      tiles_before = consumer.run(work, scale, tiles_before, o);
      // Found again rather than kept: the loop over keys has no register to spare.
      epilogue.run(piece_of<T>(p, pinned(consumer.step)), consumer.rows, o);
    });
  }
};

}  // namespace fp8_sdpa::sm90
