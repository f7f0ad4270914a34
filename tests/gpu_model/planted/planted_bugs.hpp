// Two kernels with a bug to choose: what the executor and the sanitizers are there to find.
//
// Pipeline: a cp.async double buffer, as the attention kernels have. Each tile is copied to a
// stage, transformed into a work buffer, and read from there across the block. Ring: a producer
// warp and three consumer warps around two buffers, with named barriers.
#pragma once

#include <ostream>
#include <string_view>
#include <vector>

#include "gpu/gpu.hpp"

namespace planted {

enum class Bug {
  kNone,
  kNoWait,                ///< nobody waits for the copies
  kWaitsOneTooFew,        ///< the last tile is not waited for
  kPrefetchIntoUse,       ///< the copy of the next tile goes to the stage that is being read
  kNoBarrierAfterWait,    ///< a thread's wait covers its own copies only
  kNoBarrierAfterWrite,   ///< the work buffer is read while it is written
  kNoBarrierBeforeReuse,  ///< a stage is overwritten while it is read
  kShuffleForSyncWarp,    ///< a shuffle orders no memory
  kReadsPastTheEnd,       ///< of shared memory
  kRingNoFull,            ///< the consumers do not wait for the producer
  kRingNoEmpty,           ///< the producer does not wait for the consumers
};

inline constexpr int kThreads = 128;
inline constexpr int kTiles = 6;
inline constexpr int kInts = 4;  ///< of one 16-byte copy
inline constexpr int kTileInts = kThreads * kInts;
inline constexpr int kStride = 37;  ///< how far away the element is that a thread reads

struct Params {
  const int* in;  ///< (kTiles, kTileInts), 16-byte aligned
  int* out;       ///< (kThreads)
};

template <Bug kBug>
struct Pipeline {
  using Params = planted::Params;
  struct Shared {
    alignas(16) int warp[planted::kThreads];
    alignas(16) int stage[2][kTileInts];
    alignas(16) int work[planted::kThreads];
  };
  static constexpr int kThreads = planted::kThreads;
  static constexpr int kMinBlocks = 1;

  GPU_FN static void prefetch(const Params& p, Shared& sm, int tile) {
    const int stage = (kBug == Bug::kPrefetchIntoUse ? tile + 1 : tile) % 2;
    const int chunk = gpu::thread_idx() * kInts;
    gpu::cp_async_16(&sm.stage[tile == 0 ? 0 : stage][chunk], p.in + tile * kTileInts + chunk);
    gpu::cp_async_commit();
  }

  GPU_FN static void wait(int tile) {
    if constexpr (kBug == Bug::kNoWait) return;
    if (tile + 1 < kTiles || kBug == Bug::kWaitsOneTooFew) {
      gpu::cp_async_wait<1>();
    } else {
      gpu::cp_async_wait<0>();
    }
  }

  /// The value of the lane opposite, through shared memory.
  GPU_FN static int opposite_lane(Shared& sm, int value) {
    const int t = gpu::thread_idx();
    sm.warp[t] = value;
    if constexpr (kBug == Bug::kShuffleForSyncWarp) {
      value = gpu::shfl_xor(value, 1);
    } else {
      gpu::sync_warp();
    }
    const int result = sm.warp[t ^ 31];
    gpu::sync_warp();
    return result;
  }

  GPU_FN static void run(const Params& p, Shared& sm) {
    const int t = gpu::thread_idx();
    int sum = 0;
    prefetch(p, sm, 0);
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile + 1 < kTiles) prefetch(p, sm, tile + 1);
      wait(tile);
      if constexpr (kBug != Bug::kNoBarrierAfterWait) gpu::sync_block();
      const int other = (t + kStride) % kThreads;
      int value = 0;
      for (int i = 0; i < kInts; ++i) value += sm.stage[tile % 2][other * kInts + i];
      sm.work[t] = value;
      if constexpr (kBug != Bug::kNoBarrierAfterWrite) gpu::sync_block();
      const int* work = sm.work;
      const int past_end = kBug == Bug::kReadsPastTheEnd ? kThreads : 0;
      sum += work[other + past_end] + sm.stage[tile % 2][other * kInts];
      sum += opposite_lane(sm, tile * t);
      if constexpr (kBug != Bug::kNoBarrierBeforeReuse) gpu::sync_block();
    }
    p.out[t] = sum;
    gpu::cp_async_wait<0>();
  }
};

template <Bug kBug>
struct Ring {
  using Params = planted::Params;
  static constexpr int kConsumers = 96;
  static constexpr int kThreads = 32 + kConsumers;
  static constexpr int kMinBlocks = 1;
  static constexpr int kFull = 1;   ///< and 2: the buffer holds a tile
  static constexpr int kEmpty = 3;  ///< and 4: the buffer has been read
  struct Shared {
    int buffer[2][kConsumers];
  };

  GPU_FN static void run(const Params& p, Shared& sm) {
    if (gpu::warp_idx() == 0) {
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile >= 2 && kBug != Bug::kRingNoEmpty) {
          gpu::named_barrier_sync(kEmpty + tile % 2, kThreads);
        }
        for (int i = gpu::lane_idx(); i < kConsumers; i += 32) {
          sm.buffer[tile % 2][i] = p.in[tile * kTileInts + i];
        }
        if constexpr (kBug != Bug::kRingNoFull) {
          gpu::named_barrier_arrive(kFull + tile % 2, kThreads);
        }
      }
      return;
    }
    const int consumer = gpu::thread_idx() - 32;
    int sum = 0;
    for (int tile = 0; tile < kTiles; ++tile) {
      // Without an empty barrier the producer must not run into an uncounted full one.
      if constexpr (kBug != Bug::kRingNoFull) {
        gpu::named_barrier_sync(kFull + tile % 2, kThreads);
      }
      sum += sm.buffer[tile % 2][(consumer + kStride) % kConsumers];
      if (tile + 2 < kTiles && kBug != Bug::kRingNoEmpty) {
        gpu::named_barrier_arrive(kEmpty + tile % 2, kThreads);
      }
    }
    p.out[consumer] = sum;
  }
};

/// One bug as the tests see it.
struct Planted {
  Bug bug;
  std::string_view name;
  bool ring;               ///< the kernel: Ring or Pipeline
  bool executor;           ///< whether the executor alone finds it, under some adversary
  bool address_sanitizer;  ///< whether AddressSanitizer finds it, with late copies
  bool thread_sanitizer;   ///< whether ThreadSanitizer finds it, in round robin
  fp8_sdpa::Status (*launch)(dim3, const Params&, const gpu::Queue&);
};

inline void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

inline const std::vector<Planted>& all_planted() {
  static const std::vector<Planted> kAll = {
      {Bug::kNone, "none", false, false, false, false, gpu::launch<Pipeline<Bug::kNone>>},
      {Bug::kNone, "ring_none", true, false, false, false, gpu::launch<Ring<Bug::kNone>>},
      {Bug::kNoWait, "no_wait", false, true, true, true, gpu::launch<Pipeline<Bug::kNoWait>>},
      {Bug::kWaitsOneTooFew, "waits_one_too_few", false, true, true, true,
       gpu::launch<Pipeline<Bug::kWaitsOneTooFew>>},
      {Bug::kPrefetchIntoUse, "prefetch_into_use", false, true, false, true,
       gpu::launch<Pipeline<Bug::kPrefetchIntoUse>>},
      {Bug::kNoBarrierAfterWait, "no_barrier_after_wait", false, true, true, true,
       gpu::launch<Pipeline<Bug::kNoBarrierAfterWait>>},
      {Bug::kNoBarrierAfterWrite, "no_barrier_after_write", false, true, false, true,
       gpu::launch<Pipeline<Bug::kNoBarrierAfterWrite>>},
      {Bug::kNoBarrierBeforeReuse, "no_barrier_before_reuse", false, true, false, true,
       gpu::launch<Pipeline<Bug::kNoBarrierBeforeReuse>>},
      {Bug::kShuffleForSyncWarp, "shuffle_for_sync_warp", false, false, false, true,
       gpu::launch<Pipeline<Bug::kShuffleForSyncWarp>>},
      {Bug::kReadsPastTheEnd, "reads_past_the_end", false, true, true, false,
       gpu::launch<Pipeline<Bug::kReadsPastTheEnd>>},
      {Bug::kRingNoFull, "ring_no_full", true, true, false, true,
       gpu::launch<Ring<Bug::kRingNoFull>>},
      {Bug::kRingNoEmpty, "ring_no_empty", true, true, false, true,
       gpu::launch<Ring<Bug::kRingNoEmpty>>},
  };
  return kAll;
}

/// Input, expected output, and a run.
class Experiment {
 public:
  explicit Experiment(const Planted& planted) : planted_(planted), in_(kTiles * kTileInts / kInts) {
    for (int i = 0; i < kTiles * kTileInts; ++i) in()[i] = i * i % 1009 + 1;
  }

  /// Whether the kernel ran without an error and gave the right output.
  bool passes(const fp8_sdpa::ExecutorOptions& options) {
    std::vector<int> out(kThreads, -1);
    const auto status = planted_.launch(dim3(1), {in(), out.data()}, {.executor = &options});
    return status.ok() && out == expected();
  }

  std::vector<int> expected() const {
    std::vector<int> out(kThreads, -1);
    const int outputs = planted_.ring ? Ring<Bug::kNone>::kConsumers : kThreads;
    for (int t = 0; t < outputs; ++t) {
      out[t] = 0;
      for (int tile = 0; tile < kTiles; ++tile) {
        if (planted_.ring) {
          out[t] += in()[tile * kTileInts + (t + kStride) % outputs];
          continue;
        }
        const int other = (t + 2 * kStride) % kThreads;
        for (int i = 0; i < kInts; ++i) out[t] += in()[tile * kTileInts + other * kInts + i];
        out[t] += in()[tile * kTileInts + (t + kStride) % kThreads * kInts];
        out[t] += tile * (t ^ 31);
      }
    }
    return out;
  }

 private:
  struct alignas(16) Chunk {
    int values[kInts];
  };
  int* in() { return in_.front().values; }
  const int* in() const { return in_.front().values; }

  const Planted& planted_;
  std::vector<Chunk> in_;
};

}  // namespace planted
