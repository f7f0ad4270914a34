// Fences and register allocation that asynchronous kernels need: PTX ISA, "membar, fence",
// "setmaxnreg", "elect.sync".
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/memory/warpgroup.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// fence.proxy.async.shared::cta (PTX ISA, "membar, fence"; sm_90): ordinary accesses to shared
/// memory before it come before what TMA and wgmma do there after it. The threads that wrote fence;
/// then a barrier; then one issues.
GPU_FN void fence_proxy_async([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  host::fence_proxy_async(loc);
#endif
}

/// fence.proxy.async.global (PTX ISA, "membar, fence"; sm_90): likewise for global memory. The
/// other fence does not concern it: ptxas moves stores to global memory past that one.
GPU_FN void fence_proxy_async_global([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("fence.proxy.async.global;" ::: "memory");
#else
  host::fence_proxy_async_global(loc);
#endif
}

/// No instruction: keeps the compiler from moving uses of these registers across this point.
/// Accumulators need it around wgmma_fence and wgmma_wait, of which the compiler does not know that
/// they concern registers.
template <int kRegisters>
GPU_FN void pin_registers([[maybe_unused]] float (&registers)[kRegisters]) {
#if GPU_ON_DEVICE
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(registers[i])::"memory");
#endif
}
template <int kRegisters>
GPU_FN void pin_registers([[maybe_unused]] std::uint32_t (&registers)[kRegisters]) {
#if GPU_ON_DEVICE
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+r"(registers[i])::"memory");
#endif
}

/// No instruction: what these registers hold is not used again. The next to write them is a wgmma
/// that does not accumulate, of which the compiler believes that it reads them. On the host they
/// are NaN from here on, so that a reader shows.
template <int kRegisters>
GPU_FN void forget_registers([[maybe_unused]] float (&registers)[kRegisters]) {
#if GPU_ON_DEVICE
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "=f"(registers[i])::"memory");
#else
  for (float& x : registers) x = __builtin_nanf("");
#endif
}

/// setmaxnreg.inc.sync.aligned.u32 N (PTX ISA, "setmaxnreg"; sm_90a): this warpgroup has N
/// registers a thread from here, N a multiple of 8 from 24 to 256 and not less than it has. Waits
/// until other warpgroups have given up enough.
template <int N>
GPU_FN void setmaxnreg_inc([[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
#if GPU_ON_DEVICE
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#else
  host::setmaxnreg(N, /*increase=*/true, loc);
#endif
}

/// setmaxnreg.dec.sync.aligned.u32 N (PTX ISA, "setmaxnreg"; sm_90a): gives up all but N registers
/// a thread, N as above and not more than it has.
template <int N>
GPU_FN void setmaxnreg_dec([[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
#if GPU_ON_DEVICE
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#else
  host::setmaxnreg(N, /*increase=*/false, loc);
#endif
}

/// elect.sync (PTX ISA, "elect.sync"; sm_90): true for one lane of the warp, the same at every call
/// of a kernel but not a known one.
GPU_FN bool elect_one([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  std::uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  return elected != 0;
#else
  return host::elect_one(loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
