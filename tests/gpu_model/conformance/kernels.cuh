// One small kernel per primitive, the same text for both backends.
#pragma once

#include "gpu/gpu.hpp"
#include "tests/gpu_model/conformance/base.cuh"
#include "tests/gpu_model/conformance/elementwise.cuh"
#include "tests/gpu_model/conformance/hopper_kernels.cuh"
#include "tests/gpu_model/conformance/mma_kernels.cuh"

namespace conformance {
inline namespace GPU_BACKEND {

/// out: kIndexFields ints per thread of the grid.
struct Indices : KernelBase<kIndexThreads> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const uint3 b = gpu::block_idx();
    const uint3 g = gpu::grid_dim();
    const unsigned block = b.x + g.x * (b.y + g.y * b.z);
    int* out = static_cast<int*>(p.out) +
               (static_cast<int>(block) * kIndexThreads + gpu::thread_idx()) * kIndexFields;
    const int fields[kIndexFields] = {
        gpu::thread_idx(),     gpu::lane_idx(),       gpu::warp_idx(),
        static_cast<int>(b.x), static_cast<int>(b.y), static_cast<int>(b.z),
        static_cast<int>(g.x), static_cast<int>(g.y), static_cast<int>(g.z)};
    for (int i = 0; i < kIndexFields; ++i) out[i] = fields[i];
  }
};

/// Two buffers, so that one barrier a phase is enough.
using ExchangeBuffers = int[2][kBarrierThreads];

/// out: an int per thread, that of the thread opposite after each phase plus the phase.
struct SyncBlock : KernelBase<kBarrierThreads, ExchangeBuffers> {
  GPU_FN static void run(const Buffers& p, Shared& shared) {
    const int t = gpu::thread_idx();
    int value = t;
    for (int phase = 0; phase < kBarrierPhases; ++phase) {
      shared[phase % 2][t] = value;
      gpu::sync_block();
      value = shared[phase % 2][kBarrierThreads - 1 - t] + phase;
    }
    static_cast<int*>(p.out)[t] = value;
  }
};

/// out: as SyncBlock, within each warp.
struct SyncWarp : KernelBase<kBarrierThreads, ExchangeBuffers> {
  GPU_FN static void run(const Buffers& p, Shared& shared) {
    const int t = gpu::thread_idx();
    int value = t;
    for (int phase = 0; phase < kBarrierPhases; ++phase) {
      shared[phase % 2][t] = value;
      gpu::sync_warp();
      value = shared[phase % 2][t ^ (kLanes - 1)] + phase;
    }
    static_cast<int*>(p.out)[t] = value;
  }
};

using RingBuffers = int[2][kRingConsumers];

/// A producer warp fills a ring of two buffers for three consumer warps.
/// in: kRingTiles x kRingConsumers ints. out: each consumer's sum, of the elements opposite.
struct NamedBarriers : KernelBase<kLanes + kRingConsumers, RingBuffers> {
  static constexpr int kFull = 1;   ///< and kFull + 1: the buffer holds a tile
  static constexpr int kEmpty = 3;  ///< and kEmpty + 1: the buffer has been read

  GPU_FN static void run(const Buffers& p, Shared& ring) {
    if (gpu::warp_idx() == 0) {
      produce(static_cast<const int*>(p.in), ring);
    } else {
      consume(static_cast<int*>(p.out), ring);
    }
  }
  GPU_FN static void produce(const int* in, Shared& ring) {
    for (int tile = 0; tile < kRingTiles; ++tile) {
      const int buffer = tile % 2;
      if (tile >= 2) gpu::named_barrier_sync(kEmpty + buffer, kThreads);
      for (int i = gpu::lane_idx(); i < kRingConsumers; i += kLanes) {
        ring[buffer][i] = in[tile * kRingConsumers + i];
      }
      gpu::named_barrier_arrive(kFull + buffer, kThreads);
    }
  }
  GPU_FN static void consume(int* out, Shared& ring) {
    const int consumer = gpu::thread_idx() - kLanes;
    int sum = 0;
    for (int tile = 0; tile < kRingTiles; ++tile) {
      const int buffer = tile % 2;
      gpu::named_barrier_sync(kFull + buffer, kThreads);
      sum += ring[buffer][kRingConsumers - 1 - consumer];
      if (tile + 2 < kRingTiles) gpu::named_barrier_arrive(kEmpty + buffer, kThreads);
    }
    out[consumer] = sum;
  }
};

/// in: an int per lane. out: kShuffleRounds x 32 floats; round r reads lane (5 lane + r).
struct ShuffleIndexed : KernelBase<kLanes> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int lane = gpu::lane_idx();
    const int mine = static_cast<const int*>(p.in)[lane];
    for (int round = 0; round < kShuffleRounds; ++round) {
      const int value = gpu::shfl(mine, 5 * lane + round);
      const float as_float = gpu::shfl(static_cast<float>(mine), 5 * lane + round);
      static_cast<float*>(p.out)[round * kLanes + lane] =
          as_float == static_cast<float>(value) ? as_float : -1.0F;
    }
  }
};

/// in: an int per lane. out: 32 x 32 ints; round r reads lane (lane xor r).
struct ShuffleXor : KernelBase<kLanes> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int lane = gpu::lane_idx();
    const int mine = static_cast<const int*>(p.in)[lane];
    for (int mask = 0; mask < kLanes; ++mask) {
      static_cast<int*>(p.out)[mask * kLanes + lane] = gpu::shfl_xor(mine, mask);
    }
  }
};

/// in: an int per lane. out: 32 x 32 ints; round r asks whether any lane has r.
struct AnyLane : KernelBase<kLanes> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int lane = gpu::lane_idx();
    const int mine = static_cast<const int*>(p.in)[lane];
    for (int round = 0; round < kLanes; ++round) {
      static_cast<int*>(p.out)[round * kLanes + lane] = gpu::any_lane(mine == round) ? 1 : 0;
    }
  }
};

/// in: an int per thread of the grid. Every warp leaves its values in global memory and adds to a
/// counter; the one that comes last sums up what all have left. out: the counter; the values as
/// (kLanes, kAtomicWarps), at kAtomicParts; a 1 per warp, in its turn; a sum per lane, that of the
/// lane opposite.
/// With kCas by compare and swap of 64 bits, of which the counter is the lower half.
template <bool kCas>
struct AtomicAdd : KernelBase<kAtomicThreads> {
  GPU_FN static std::uint32_t add(std::uint32_t* counter) {
    if constexpr (!kCas) return gpu::atomic_add_acq_rel(counter, kAtomicStep);
    auto* wide = reinterpret_cast<std::uint64_t*>(counter);
    std::uint64_t seen = 0;
    while (true) {
      const std::uint64_t before = gpu::atomic_cas_acq_rel_if(true, wide, seen, seen + kAtomicStep);
      if (before == seen) return static_cast<std::uint32_t>(seen);
      seen = before;
    }
  }
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int lane = gpu::lane_idx();
    const int warp =
        static_cast<int>(gpu::block_idx().x) * (kAtomicThreads / kLanes) + gpu::warp_idx();
    auto* out = static_cast<std::uint32_t*>(p.out);
    std::uint32_t* parts = out + kAtomicParts;
    // Reads the zero first: the cache then holds what other blocks, next to it, have yet to write.
    parts[lane * kAtomicWarps + warp] +=
        static_cast<const std::uint32_t*>(p.in)[warp * kLanes + lane];
    gpu::sync_warp();
    std::uint32_t before = 0;
    if (lane == 0) {
      before = add(out);
      out[kAtomicTurns + before / kAtomicStep % kAtomicWarps] = 1;
    }
    before = gpu::shfl(before, 0);
    gpu::sync_warp();
    if (before != kAtomicStep * (kAtomicWarps - 1)) return;
    std::uint32_t sum = 0;
    for (int w = 0; w < kAtomicWarps; ++w) {
      sum += parts[(lane ^ (kLanes - 1)) * kAtomicWarps + w];
    }
    out[kAtomicSums + lane] = sum;
  }
};

/// in: an int per thread of all warps but the first, which leave them in global memory and count
/// themselves; the first waits until all have, and sums up. out: the counter, two words that the
/// launch zeroes; the values; the sums.
/// With Word of 64 bits, the upper half of the counter counts too, without order.
template <class Word>
struct WaitForWord : KernelBase<kWordWarps * kLanes> {
  static constexpr bool kWide = sizeof(Word) == sizeof(std::uint64_t);
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int lane = gpu::lane_idx();
    const int warp = gpu::warp_idx() - 1;
    auto* out = static_cast<std::uint32_t*>(p.out);
    auto* counter = reinterpret_cast<Word*>(out);
    std::uint32_t* parts = out + kWordParts;
    if (warp >= 0) {
      parts[warp * kLanes + lane] = static_cast<const std::uint32_t*>(p.in)[warp * kLanes + lane];
      gpu::sync_warp();
      if constexpr (kWide) {
        if (lane == 1) gpu::atomic_add_relaxed(counter, Word{1} << 32);
      }
      if (lane == 0) gpu::atomic_add_acq_rel(counter, 1);
      return;
    }
    constexpr std::uint64_t kAll = kWordWarps - 1;
    constexpr auto kAwaited = static_cast<Word>(kWide ? kAll << 32 | kAll : kAll);
    if (lane == 0) gpu::wait_for_word(counter, kAwaited);
    gpu::sync_warp();
    auto sum = static_cast<std::uint32_t>(gpu::load_acquire(counter));
    for (int w = 0; w < kWordWarps - 1; ++w) sum += parts[w * kLanes + lane];
    out[kWordSums + lane] = sum;
  }
};

struct Chunk {
  alignas(kCopyBytes) unsigned char bytes[kCopyBytes];
};
using CopyStages = Chunk[2][kCopyThreads];
using CopyStage = Chunk[kLanes];

/// in: kCopyTiles x kCopyThreads chunks. out: the same, each tile's chunks backwards. Two stages,
/// the next tile prefetched while one is read.
struct CpAsync : KernelBase<kCopyThreads, CopyStages> {
  GPU_FN static void run(const Buffers& p, Shared& stages) {
    const int t = gpu::thread_idx();
    const Chunk* in = static_cast<const Chunk*>(p.in);
    gpu::cp_async_16(&stages[0][t], &in[t]);
    gpu::cp_async_commit();
    for (int tile = 0; tile < kCopyTiles; ++tile) {
      if (tile + 1 < kCopyTiles) {
        gpu::cp_async_16(&stages[(tile + 1) % 2][t], &in[(tile + 1) * kCopyThreads + t]);
      }
      gpu::cp_async_commit();
      gpu::cp_async_wait<1>();
      gpu::sync_block();
      static_cast<Chunk*>(p.out)[tile * kCopyThreads + t] = stages[tile % 2][kCopyThreads - 1 - t];
      gpu::sync_block();
    }
    gpu::cp_async_wait<0>();
  }
};

/// in: 32 chunks. out: 32 chunks, those of lanes divisible by 3 zero.
struct CpAsyncZfill : KernelBase<kLanes, CopyStage> {
  GPU_FN static void run(const Buffers& p, Shared& stage) {
    const int lane = gpu::lane_idx();
    gpu::cp_async_16_zfill(&stage[lane], static_cast<const Chunk*>(p.in) + lane, lane % 3 != 0);
    gpu::cp_async_commit();
    gpu::cp_async_wait<0>();
    static_cast<Chunk*>(p.out)[lane] = stage[lane];
  }
};

/// Prints a line from one thread.
struct Print : KernelBase<kLanes> {
  GPU_FN static void run(const Buffers&, Nothing&) {
    if (gpu::thread_idx() == 7) gpu::print("thread %d: %.4g\n", gpu::thread_idx(), 0.25);
  }
};

template <class Op>
fp8_sdpa::Status launch_elementwise(const Buffers& buffers, const gpu::Queue& queue) {
  using Kernel = Elementwise<Op>;
  const int blocks = (buffers.count + Kernel::kPerBlock - 1) / Kernel::kPerBlock;
  return gpu::launch<Kernel>(dim3(static_cast<unsigned>(blocks)), buffers, queue);
}

/// in: an unsigned per thread of the grid. out: the largest of all, and of every other; the number
/// of threads, counted twice.
struct AtomicMax : KernelBase<kAtomicThreads> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int thread = static_cast<int>(gpu::block_idx().x) * kAtomicThreads + gpu::thread_idx();
    const std::uint32_t mine = static_cast<const std::uint32_t*>(p.in)[thread];
    auto* out = static_cast<std::uint32_t*>(p.out);
    gpu::atomic_max_relaxed(out, mine);
    if (thread % 2 != 0) gpu::atomic_max_relaxed(out + 1, mine);
    gpu::atomic_add_release(out + 2, 1);
    gpu::atomic_add_relaxed(out + 3, 1);
  }
};

/// in: an unsigned per thread of the grid, none of them 0. out: the same, told to all blocks; of
/// each thread, the sum of its own and of what the same thread of each block has told.
struct BlocksAtOnce : KernelBase<kAtomicThreads> {
  static constexpr bool kCooperative = true;
  GPU_FN static void run(const Buffers& p, Nothing&) {
    constexpr int kAll = kAtomicBlocks * kAtomicThreads;
    const int first = static_cast<int>(gpu::block_idx().x) * kAtomicThreads;
    const int thread = gpu::thread_idx();
    auto* const told = static_cast<std::uint32_t*>(p.out);
    gpu::store_relaxed(told + first + thread,
                       static_cast<const std::uint32_t*>(p.in)[first + thread]);
    std::uint32_t sum = gpu::load_relaxed(told + first + thread);
    for (int block = kAtomicBlocks - 1; block >= 0; --block) {
      sum += gpu::wait_while_zero(told + block * kAtomicThreads + thread);
    }
    told[kAll + first + thread] = sum;
  }
};

/// The first `words` of out are zero then.
template <class Kernel>
fp8_sdpa::Status launch_atomic(const Buffers& buffers, int words, const gpu::Queue& queue) {
  const auto status = gpu::fill_zero(buffers.out, words * sizeof(std::uint32_t), queue);
  if (!status.ok()) return status;
  return gpu::launch<Kernel>(dim3(kAtomicBlocks), buffers, queue);
}

/// out[i] = i + 1, late, when the next kernel may long have started.
struct WriteLate : KernelBase<kEarlyThreads> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    gpu::pdl_launch_dependents();
    constexpr std::uint64_t kClocks = 20000;
    for (const std::uint64_t start = gpu::clock(); gpu::clock() - start < kClocks;) {
    }
    const int i = static_cast<int>(gpu::block_idx().x) * kEarlyThreads + gpu::thread_idx();
    static_cast<std::int32_t*>(p.out)[i] = i + 1;
  }
};
/// out[n + i] = 2 out[n - 1 - i], which another block has written.
struct ReadAfterWaiting : KernelBase<kEarlyThreads> {
  static constexpr bool kUsesPdl = true;
  GPU_FN static void run(const Buffers& p, Nothing&) {
    const int i = static_cast<int>(gpu::block_idx().x) * kEarlyThreads + gpu::thread_idx();
    auto* const out = static_cast<volatile std::int32_t*>(p.out);
    gpu::pdl_wait();
    out[kEarlyWords + i] = 2 * out[kEarlyWords - 1 - i];
  }
};

template <class Word>
fp8_sdpa::Status launch_wait(const Buffers& b, const gpu::Queue& q) {
  const auto status = gpu::fill_zero(b.out, kWordParts * sizeof(std::uint32_t), q);
  return status.ok() ? gpu::launch<WaitForWord<Word>>(dim3(1), b, q) : status;
}

inline fp8_sdpa::Status launch(Primitive primitive, const Buffers& b, const gpu::Queue& q) {
  switch (primitive) {
    case Primitive::kIndices:
      return gpu::launch<Indices>(dim3(kIndexGrid[0], kIndexGrid[1], kIndexGrid[2]), b, q);
    case Primitive::kSyncBlock: return gpu::launch<SyncBlock>(dim3(1), b, q);
    case Primitive::kSyncWarp: return gpu::launch<SyncWarp>(dim3(1), b, q);
    case Primitive::kNamedBarriers: return gpu::launch<NamedBarriers>(dim3(1), b, q);
    case Primitive::kShuffle: return gpu::launch<ShuffleIndexed>(dim3(1), b, q);
    case Primitive::kShuffleXor: return gpu::launch<ShuffleXor>(dim3(1), b, q);
    case Primitive::kAnyLane: return gpu::launch<AnyLane>(dim3(1), b, q);
    case Primitive::kCpAsync: return gpu::launch<CpAsync>(dim3(1), b, q);
    case Primitive::kCpAsyncZfill: return gpu::launch<CpAsyncZfill>(dim3(1), b, q);
    case Primitive::kAtomicAdd: return launch_atomic<AtomicAdd<false>>(b, kAtomicTurns, q);
    case Primitive::kAtomicCas: return launch_atomic<AtomicAdd<true>>(b, kAtomicTurns, q);
    case Primitive::kAtomicMax: return launch_atomic<AtomicMax>(b, 4, q);
    case Primitive::kBlocksAtOnce:
      return launch_atomic<BlocksAtOnce>(b, kAtomicBlocks * kAtomicThreads, q);
    case Primitive::kWaitForWord: return launch_wait<std::uint32_t>(b, q);
    case Primitive::kWaitForWideWord: return launch_wait<std::uint64_t>(b, q);
    case Primitive::kEarlyStart:
      return gpu::launch_both<WriteLate, ReadAfterWaiting>(dim3(kEarlyBlocks), b,
                                                           dim3(kEarlyBlocks), b, q);
    case Primitive::kE4M3ToHalf: return launch_elementwise<E4M3ToHalf>(b, q);
    case Primitive::kE5M2ToHalf: return launch_elementwise<E5M2ToHalf>(b, q);
    case Primitive::kE4M3x4ToHalf4: return launch_elementwise<E4M3x4ToHalf4>(b, q);
    case Primitive::kE5M2x4ToHalf4: return launch_elementwise<E5M2x4ToHalf4>(b, q);
    case Primitive::kFloat2ToE4M3x2: return launch_elementwise<Float2ToE4M3x2>(b, q);
    case Primitive::kFloat2ToE5M2x2: return launch_elementwise<Float2ToE5M2x2>(b, q);
    case Primitive::kHalf4ToE4M3x4: return launch_elementwise<Half4ToE4M3x4>(b, q);
    case Primitive::kPrmt: return launch_elementwise<Prmt>(b, q);
    case Primitive::kHalfToFloat: return launch_elementwise<HalfToFloat>(b, q);
    case Primitive::kHalf2ToFloat2: return launch_elementwise<Half2ToFloat2>(b, q);
    case Primitive::kFloatToHalf: return launch_elementwise<FloatToHalf>(b, q);
    case Primitive::kFloat2ToHalf2: return launch_elementwise<Float2ToHalf2>(b, q);
    case Primitive::kFloat2ToHalf2Relu: return launch_elementwise<Float2ToHalf2Relu>(b, q);
    case Primitive::kFloatToBFloat16: return launch_elementwise<FloatToBFloat16>(b, q);
    case Primitive::kFloat2ToBFloat162: return launch_elementwise<Float2ToBFloat162>(b, q);
    case Primitive::kExp2: return launch_elementwise<Exp2>(b, q);
    case Primitive::kLog2: return launch_elementwise<Log2>(b, q);
    case Primitive::kMaxNan: return launch_elementwise<MaxNan>(b, q);
    case Primitive::kFma: return launch_elementwise<Fma>(b, q);
    case Primitive::kDivide: return launch_elementwise<Divide>(b, q);
    case Primitive::kFmaHalf2: return launch_elementwise<FmaHalf2>(b, q);
    case Primitive::kLdmatrix: return gpu::launch<Ldmatrix>(dim3(1), b, q);
    case Primitive::kMmaHalf: return gpu::launch<Mma16<gpu::Float16::kHalf>>(dim3(1), b, q);
    case Primitive::kMmaBFloat16: return gpu::launch<Mma16<gpu::Float16::kBFloat16>>(dim3(1), b, q);
    case Primitive::kMmaFp8: return gpu::launch<MmaFp8>(dim3(1), b, q);
    case Primitive::kWmma: return gpu::launch<Wmma>(dim3(1), b, q);
    case Primitive::kPrint: return gpu::launch<Print>(dim3(1), b, q);
    case Primitive::kStmatrix:
    case Primitive::kMBarrier:
    case Primitive::kMBarrierArriveIf:
    case Primitive::kTmaLoad:
    case Primitive::kBulkLoad:
    case Primitive::kGlobalStore:
    case Primitive::kWgmmaSizes:
    case Primitive::kWgmmaSwizzles:
    case Primitive::kWgmmaTypes:
    case Primitive::kWgmmaInt8:
    case Primitive::kWgmmaHalf:
    case Primitive::kWgmmaBFloat16:
    case Primitive::kElectOne:
    case Primitive::kSetmaxnreg: return launch_hopper(primitive, b, q);
  }
  return fp8_sdpa::invalid_argument("no such primitive");
}

}  // namespace GPU_BACKEND
}  // namespace conformance
