// Where a thread is: PTX ISA, "Special Registers".
#pragma once

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// %tid.x: this thread in its block. Blocks are one-dimensional.
GPU_FN int thread_idx() {
#if GPU_ON_DEVICE
  // Not negative as an int: divisions by powers of two become shifts.
  constexpr unsigned kMaxThreads = 1024;
  __builtin_assume(threadIdx.x < kMaxThreads);
  return static_cast<int>(threadIdx.x);
#else
  return host::current_lane->thread;
#endif
}

/// This thread in its warp, 0 to 31. Taken from %tid.x, which the compiler can reason about better
/// than %laneid; equal to it, since blocks are one-dimensional.
GPU_FN int lane_idx() {
#if GPU_ON_DEVICE
  return static_cast<int>(threadIdx.x % unsigned{kWarpSize});
#else
  return host::current_lane->lane;
#endif
}

/// This thread's warp in its block.
GPU_FN int warp_idx() {
#if GPU_ON_DEVICE
  return static_cast<int>(threadIdx.x / unsigned{kWarpSize});
#else
  return host::current_lane->warp;
#endif
}

/// %ctaid: this block in the grid.
GPU_FN uint3 block_idx() {
#if GPU_ON_DEVICE
  return blockIdx;
#else
  return host::current_lane->block_idx;
#endif
}

/// %nctaid: blocks of the grid.
GPU_FN uint3 grid_dim() {
#if GPU_ON_DEVICE
  return gridDim;
#else
  return host::current_lane->grid_dim;
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
