// The kernel before, of a ragged batch: work/ragged.cuh.
#pragma once

#include "sm90/shared.cuh"
#include "sm90/work/packed_rows.cuh"

namespace fp8_sdpa::sm90 {

/// One block: sequences, kThreads at a time, in the order of their keys.
template <class Tag>
struct OrderSequences {
  using Params = sm90::Params;
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kUsesPdl = true;

  struct Shared {
    int keys[kThreads];
    int work_tiles[kThreads];
  };

  GPU_FN static void run(const Params& p, Shared& sm) {
    gpu::pdl_wait();
    gpu::pdl_launch_dependents();
    const RaggedParams& ragged = p.ragged;
    const int thread = gpu::thread_idx();
    int work_tiles = 0;  // of earlier ones
    for (int first = 0; first < ragged.batch; first += kThreads) {
      const int count = ragged.batch - first < kThreads ? ragged.batch - first : kThreads;
      RaggedSequence own{};
      own.batch = first + thread;
      if (thread < count) {
        own.sequence = attention::sequence_of(ragged.sequences, own.batch);
        const bool bad = own.sequence.bad_queries || own.sequence.bad_keys;
        if (bad && ragged.fault != nullptr) gpu::atomic_max_relaxed(ragged.fault, 1);
        constexpr int kTileM = Traits<Tag>::kTileM;
        own.row_tiles = (rows_of_queries(p, own.sequence.queries) + kTileM - 1) / kTileM;
        sm.keys[thread] = own.sequence.keys;
        sm.work_tiles[thread] = own.row_tiles * p.packed.heads.value;
      }
      gpu::sync_block();
      int rank = first;
      own.first_work_tile = work_tiles;
      for (int i = 0; i < count; ++i) {
        const int keys = sm.keys[i];
        const bool before = keys > own.sequence.keys || (keys == own.sequence.keys && i < thread);
        rank += before ? 1 : 0;
        own.first_work_tile += before ? sm.work_tiles[i] : 0;
        work_tiles += sm.work_tiles[i];
      }
      if (thread < count) ragged.order[rank] = own;
      gpu::sync_block();  // before the next ones overwrite these
    }
    if (thread == 0) ragged.order[ragged.batch].first_work_tile = work_tiles;
  }
};

}  // namespace fp8_sdpa::sm90
