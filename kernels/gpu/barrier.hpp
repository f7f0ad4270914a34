// Barriers: PTX ISA, "Parallel Synchronization and Communication Instructions".
#pragma once

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// bar.sync 0 (PTX ISA, "bar, barrier"): every thread of the block waits for every other; orders
/// their memory accesses. Every thread of a warp must come to the same call.
GPU_FN void sync_block([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  __syncthreads();
#else
  host::sync_block(loc);
#endif
}

/// bar.warp.sync with the full mask (PTX ISA, "bar.warp.sync"): the threads of a warp wait for each
/// other; orders their memory accesses.
GPU_FN void sync_warp([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  __syncwarp();
#else
  host::sync_warp(loc);
#endif
}

/// bar.sync id, threads (PTX ISA, "bar, barrier"): waits until `threads` threads, a multiple of 32,
/// have come to barrier `id`, 0 to 15. Barrier 0 is that of sync_block.
GPU_FN void named_barrier_sync(int id, int threads, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  host::named_barrier(id, threads, /*wait=*/true, loc);
#endif
}

/// bar.arrive id, threads (PTX ISA, "bar, barrier"): counts this warp at barrier `id` and goes on.
/// Orders the accesses before it with those after the barrier in threads that waited.
GPU_FN void named_barrier_arrive(int id, int threads, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  host::named_barrier(id, threads, /*wait=*/false, loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
