// FP8 attention forward for Hopper: TMA, mbarrier rings, wgmma on E4M3, specialised warpgroups.
//
// Persistent blocks take work tiles (a tile of query rows of a (batch, head)) in turn; the last
// ones are shared out by KV tiles, and a kernel behind this one merges their splits (schedule.hpp,
// work.cuh, merge_splits.cuh). Warpgroup 0 produces: one thread issues TMA for Q, K and V, three
// warps transpose V into the layout of P V (producer.cuh). The others consume: each has 64 query
// rows, S, P and O in registers, and online softmax (consumer.cuh, softmax.cuh); it writes its own
// rows (epilogue.cuh). Where warpgroups share rows (kv_splits > 1), each takes every kv_splits-th
// KV tile, and they merge O, m and l through shared memory.
//
// Tiles and barriers: shared.cuh. The kernels' shapes: tile_shapes.def. Named barriers:
//
//   barrier        | who, threads                     | when
//   ---------------|----------------------------------|------------------------------------------
//   0 (block)      | all, without kFindsFirst         | once: the mbarriers are initialised
//   1 + row group  | the warpgroups that share rows   | kv_splits > 1: splits written, read
//   8              | the warps that transpose for all | kOnceByBlocks: a unit is known, transposed
//   9, 10          | consumers, producers; who does   | once, with kFindsFirst: the mbarriers are
//                  | not wait there arrives           | initialised
#pragma once

#include "sm90/load/ragged_loader.cuh"
#include "sm90/load/shared_transpose.cuh"
#include "sm90/output/epilogue.cuh"

namespace fp8_sdpa::sm90 {

template <class Tag>
struct Kernel {
  using T = Traits<Tag>;
  using Params = sm90::Params;
  using Shared = sm90::Shared<T>;
  static constexpr int kThreads = T::kConfig.threads();
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kUsesPdl = true;
  static constexpr RegisterShares kRegisters = register_shares(T::kConfig);

  /// Whether a block finds its first tile range before it meets: straight code takes some four
  /// clocks an instruction, and all that comes behind the meeting delays the first load. Where V is
  /// transposed before, and at head_dim 256, ptxas then spills; the order of a ragged batch is not
  /// known yet.
  static constexpr bool kFindsFirst = !T::kVInWorkspace && T::kHeadDim < 256 && !T::kRagged;

  static constexpr std::size_t kSharedLimit = 227 * 1024;  // that a block may opt in to
  static_assert(sizeof(Shared) <= kSharedLimit);

  GPU_FN static void run(const Params& p, Shared& sm) {
    // A copy: the index itself would be kept in a register from here on.
    std::uint32_t thread[1] = {static_cast<std::uint32_t>(gpu::thread_idx())};
    gpu::pin_registers(thread);
    // From one lane, so that the compiler knows it is the same in all.
    const int warp = gpu::shfl(static_cast<int>(thread[0]) / gpu::kWarpSize, 0);
    const int lane = static_cast<int>(thread[0]) % gpu::kWarpSize;
    if constexpr (!kFindsFirst) {
      initialise(p, sm, warp, lane);
      gpu::sync_block();
    }
    if (warp < kWarpgroupWarps) {
      gpu::setmaxnreg_dec<kRegisters.producer>();
      if constexpr (kFindsFirst) initialise(p, sm, warp, lane);
      produce(p, sm, warp);
    } else {
      gpu::setmaxnreg_inc<kRegisters.consumer>();
      if constexpr (kFindsFirst) initialise(p, sm, warp, lane);
      consume(p, sm, warp / kWarpgroupWarps - 1, warp % kWarpgroupWarps);
    }
  }

 private:
  /// One thread of each of five warps has a part, so that none takes long: an mbarrier.init is some
  /// 60 clocks, and lanes of one warp would take turns at it. Ends before the block meets.
  GPU_FN static void initialise(const Params& p, Shared& sm, int warp, int lane) {
    if (lane == 0) {
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
      gpu::mbarrier_init(sm.value_full[stage], T::kCopiesValues ? 1 : transposers);
      gpu::mbarrier_init(sm.value_empty[stage], kWarps * T::kRowGroups);
    }
#pragma unroll
    for (int i = 0; i < Shared::kStagingFull; i += kWarps) {
      if (i + warp < Shared::kStagingFull) gpu::mbarrier_init(sm.staging_full[i + warp], 1);
    }
    if (warp < Shared::kStagingBuffers) gpu::mbarrier_init(sm.staging_empty[warp], transposers);
    if (warp < T::kQueryStages) gpu::mbarrier_init(sm.query_full[warp], 1);
    if constexpr (T::kRagged) {
      static_assert(RaggedState<T>::kTold == kWarps);
      gpu::mbarrier_init(sm.ragged.work_full[warp], 1);
      gpu::mbarrier_init(sm.ragged.work_empty[warp], T::kConsumers * kWarpgroupThreads);
    }
    if constexpr (T::kTransposesOnce) {
      if (warp < UnitBuffers<T>::kSlots) gpu::mbarrier_init(sm.unit.staged[warp], 1);
    }
    if constexpr (T::kConfig.ping_pong) {
      for (auto& group : sm.ping_pong) gpu::mbarrier_init(group[warp], 1);
    }
  }

  /// The block meets, at two barriers: who blocks at one barrier does so at one instruction (PTX
  /// ISA, "bar, barrier": bar is aligned), and the two roles are at different ones. A role says
  /// what it has initialised at once, and waits for the other's when it wants that.
  static constexpr int kMeetConsumers = 9;
  static constexpr int kMeetProducers = 10;
  template <bool kProducer>
  GPU_FN static void announce() {
    gpu::named_barrier_arrive(kProducer ? kMeetConsumers : kMeetProducers, kThreads);
  }
  template <bool kProducer>
  GPU_FN static void meet() {
    gpu::named_barrier_sync(kProducer ? kMeetProducers : kMeetConsumers, kThreads);
  }

  GPU_FN static void produce(const Params& p, Shared& sm, int warp) {
    if constexpr (kFindsFirst) {
      announce<true>();
      const NextWork<T> first(p);
      meet<true>();
      if (warp == 0) {
        if (issues_loads()) load(p, sm, first);
        return;
      }
    } else if (warp == 0) {
      if constexpr (T::kRagged) {
        gpu::pdl_wait();  // for the order
        gpu::pdl_launch_dependents();
        RaggedLoader<T>{p, sm, gpu::lane_idx()}.run();
      } else {
        if (issues_loads()) load(p, sm, NextWork<T>(p));
      }
      return;
    }
    if constexpr (T::kTransposesOnce) {
      UnitTransposer<T>{p, sm, warp - 1}.run();
    } else if constexpr (!T::kCopiesValues) {
      Transposer<T>{p, sm, warp - 1}.run();
    }
  }
  /// With elect_one the compiler knows that one lane issues the loads, and keeps their coordinates
  /// in uniform registers. 1 % at head_dim 256; at 64 and 128, 0.5 % slower.
  GPU_FN static bool issues_loads() {
    return T::kHeadDim > 128 ? gpu::elect_one() : gpu::lane_idx() == 0;
  }
  GPU_FN static void load(const Params& p, Shared& sm, const NextWork<T>& first) {
    gpu::pdl_launch_dependents();
    Loader<T>{p, sm}.run(first);
  }

  /// Tells the warp's epilogue where its work tile lies.
  GPU_FN static void hold(const Params& p, Shared& sm, unsigned step, const Work& work) {
    const int warp = consumer_warp<T>();
    const int row = T::kRagged  ? work.sequence.first_query
                    : T::kPacks ? 0
                                : work.first_row + row_of_warp<T>(warp);
    std::uint16_t* const o = attention::row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides,
                                                    work.batch, work.head, row);
    gpu::sync_warp();  // nobody reads those of the work tile before any more
    if (gpu::lane_idx() == 0) {
      sm.held[warp] = {work.batch, work.head, work.first_row, work.first_tile, step == 0, 0.0F, o};
      if constexpr (T::kRagged) sm.ragged.nth[warp] = step;
    }
    gpu::sync_warp();
  }

  GPU_FN static void consume(const Params& p, Shared& sm, int group, int warp_of_group) {
    Progress done;
    if constexpr (kFindsFirst) {
      announce<false>();
      NextWork<T> next(p);
      if (next.any()) hold(p, sm, 0, next.work);
      Consumer<T> consumer(p, sm, group, gpu::shfl(gpu::warp_idx() % kWarpgroupWarps, 0));
      meet<false>();
      gpu::pdl_wait();
      while (next.any()) {
        work_off(consumer, next.step, next.work, done);
        next.find(p, consumer.step + 1);
        if (next.any()) hold(p, sm, next.step, next.work);
      }
    } else if constexpr (T::kRagged) {
      consume_ragged(p, sm, group, warp_of_group);
    } else {
      gpu::pdl_wait();
      Consumer<T> consumer(p, sm, group, gpu::shfl(gpu::warp_idx() % kWarpgroupWarps, 0));
      for (int step = 0;; ++step) {
        const TileRange range = range_of<T>(p, step);
        if (range.work_tile == TileRange::kNone) break;
        const Work work = locate<T>(p, range);
        hold(p, sm, step, work);
        work_off(consumer, step, work, done);
      }
    }
  }
  /// Work tiles as the loader tells of them, once earlier kernels have ended. The loop over keys
  /// has no register for their number.
  GPU_FN static void consume_ragged(const Params& p, Shared& sm, int group, int warp_of_group) {
    using State = RaggedState<T>;
    Progress done;
    Consumer<T> consumer(p, sm, group, warp_of_group);
    for (unsigned nth = 0;; ++nth) {
      const int slot = slot_of<State::kTold>(nth);
      gpu::mbarrier_wait(sm.ragged.work_full[slot], full_parity<State::kTold>(nth));
      const Work work = same_in_all(sm.ragged.told[slot].work);
      if (work.tiles < 0) return;
      hold(p, sm, nth, work);
      done.work_tiles = gpu::shfl(sm.ragged.told[slot].with_keys, 0);
      work_off(consumer, 0, work, done);
      nth = gpu::shfl(sm.ragged.nth[consumer_warp<T>()], 0);
      gpu::mbarrier_arrive(sm.ragged.work_empty[slot_of<State::kTold>(nth)]);
    }
  }

  /// How far a consumer warpgroup has come: in the rings of K and V, and of Q.
  struct Progress {
    unsigned tiles = 0;
    unsigned work_tiles = 0;  ///< with keys
  };
  /// With Config::block_scales that of the tile which is added last, the first one.
  GPU_FN static float v_descale_of(const Params& p, const Work& work) {
    if constexpr (T::kBlockScales) {
      const int block = p.kv_descales == 1 ? 0 : work.first_tile;
      return p.descale_v[first_descale_kv(p, work) + block];
    } else {
      if (T::kInt8 && p.descale_v == nullptr) return 1.0F;
      return p.descale_v[work.batch * p.heads_kv + work.kv_head];
    }
  }
  /// A tile range, from Q to O.
  GPU_FN static void work_off(Consumer<T>& consumer, int step, const Work& work, Progress& done) {
    const Params& p = consumer.p;
    Shared& sm = consumer.sm;
    typename Consumer<T>::Outputs o;
    consumer.step = step;
    // On their way while Q is.
    const float scale = consumer.scale_of(work);
    const float v_descale = v_descale_of(p, work);
    if (work.tiles > 0) {
      // A warpgroup without tiles does not wait: Q of a later work tile may be there already.
      consumer.query_slot = slot_of<T::kQueryStages>(done.work_tiles);
      if (work.tiles > consumer.kv_split) {
        gpu::mbarrier_wait(sm.query_full[consumer.query_slot],
                           full_parity<T::kQueryStages>(done.work_tiles));
      }
      ++done.work_tiles;
    }
    if (lane_of_thread<T>() == 0) sm.held[consumer_warp<T>()].v_descale = v_descale;
    if constexpr (T::kBlockScales) consumer.keep_row_scale(consumer.row_scale(work));
    gpu::sync_warp();
    done.tiles = consumer.run(work, scale, done.tiles, o);
    // Found again rather than kept: the loop over keys has no register to spare.
    const Epilogue<T> epilogue{p, sm, consumer.row_group, consumer.kv_split};
    const TileRange range = T::kRagged ? TileRange{} : range_of<T>(p, pinned(consumer.step));
    epilogue.run(range, consumer.rows, o);
  }
};

}  // namespace fp8_sdpa::sm90
