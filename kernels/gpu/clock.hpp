// Time and place, for logs written by a kernel: PTX ISA, "Special Registers".
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include <chrono>
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// %clock64: cycles of this thread's multiprocessor. Not moved across memory accesses. On the host
/// executor: nanoseconds of the host, good for order alone.
GPU_FN std::uint64_t clock() {
#if GPU_ON_DEVICE
  std::uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// %smid: the multiprocessor that this thread runs on. 0 on the host executor.
GPU_FN unsigned multiprocessor_idx() {
#if GPU_ON_DEVICE
  unsigned index;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(index));
  return index;
#else
  return 0;
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
