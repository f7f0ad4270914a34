// Asynchronous copies from global to shared memory: PTX ISA, "Data Movement and Conversion
// Instructions: Non-bulk copy".
//
// A copy may land at any time between its issue and the wait that asks for its group. It lands for
// the thread that issued it: other threads see the data after a barrier that follows that wait.
#pragma once

#include "gpu/backend.hpp"
#if GPU_ON_DEVICE
#include <cstdint>
#else
#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// Bytes that one cp.async of this header moves; both addresses are multiples of it.
inline constexpr int kCpAsyncBytes = 16;

#if GPU_ON_DEVICE
/// A generic pointer to shared memory as the 32-bit address that PTX's shared state space takes.
GPU_FN std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

/// cp.async.cg.shared.global.L2::128B [dst], [src], 16 (PTX ISA, "cp.async"): copies 16 bytes, past
/// L1. The whole line comes to L2: rows of 64 bytes leave the other half for a neighbour.
GPU_FN void cp_async_16(void* shared_dst, const void* global_src,
                        [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], %2;" ::"r"(shared_address(shared_dst)),
      "l"(global_src), "n"(kCpAsyncBytes)
      : "memory");
#else
  host::cp_async(shared_dst, global_src, kCpAsyncBytes, "cp_async_16", loc);
#endif
}

/// cp.async.cg.shared.global.L2::128B [dst], [src], 16, ignore-src (PTX ISA, "cp.async"): copies 16
/// bytes if `there`; else it reads nothing and fills the 16 with zeros. A predicate, not the size
/// of the source, says so: with that the compiler moves the source's address, five instructions a
/// copy.
GPU_FN void cp_async_16_zfill(void* shared_dst, const void* global_src, bool there,
                              [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile(
      "{\n.reg .pred ignored;\nsetp.eq.u32 ignored, %3, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], %2, ignored;\n}" ::"r"(
          shared_address(shared_dst)),
      "l"(global_src), "n"(kCpAsyncBytes), "r"(there ? 1 : 0)
      : "memory");
#else
  host::cp_async(shared_dst, global_src, there ? kCpAsyncBytes : 0, "cp_async_16_zfill", loc);
#endif
}

/// cp.async.commit_group (PTX ISA, "cp.async.commit_group"): this thread's copies since the last
/// commit become one group, which may be empty.
GPU_FN void cp_async_commit([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  host::cp_async_commit(loc);
#endif
}

/// cp.async.wait_group N (PTX ISA, "cp.async.wait_group"): waits until at most the N youngest
/// groups of this thread are in flight.
template <int N>
GPU_FN void cp_async_wait([[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(N >= 0);
#if GPU_ON_DEVICE
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#else
  host::cp_async_wait(N, loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
