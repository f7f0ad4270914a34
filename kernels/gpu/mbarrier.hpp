// Barriers in shared memory that count arrivals and bytes: PTX ISA, "Parallel Synchronization and
// Communication Instructions: mbarrier".
//
// A phase is complete when `count` arrivals have come and as many bytes have landed as were
// expected; the next one starts at once. Phases alternate between parity 0, the first, and 1.
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if GPU_ON_DEVICE
#include "gpu/cp_async.hpp"
#else
#include "gpu/host/memory/mbarrier.hpp"
#endif

namespace gpu {

/// Lives in shared memory; opaque.
struct alignas(8) MBarrier {
  std::uint64_t word;
};

inline namespace GPU_BACKEND {

/// mbarrier.init.shared::cta.b64 (PTX ISA, "mbarrier.init"; sm_80): one thread makes a barrier of
/// `count` arrivals a phase, 1 to 2^20 - 1. Others may use it after a block barrier; before the
/// async proxy may, fence_mbarrier_init comes between.
GPU_FN void mbarrier_init(MBarrier& barrier, int count, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
#else
  host::mbarrier_init(barrier, count, loc);
#endif
}

/// fence.mbarrier_init.release.cluster (PTX ISA, "membar, fence"; sm_90): makes this thread's
/// mbarrier_init visible to the async proxy.
GPU_FN void fence_mbarrier_init([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  host::fence_mbarrier_init(loc);
#endif
}

/// mbarrier.arrive.shared::cta.b64 (PTX ISA, "mbarrier.arrive"; sm_80): counts this thread, and
/// orders what it did before with what those who wait do after.
GPU_FN void mbarrier_arrive(MBarrier& barrier, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(
                   shared_address(&barrier))
               : "memory");
#else
  host::mbarrier_arrive(barrier, loc);
#endif
}

/// The same under a predicate: no branch, so that the compiler may mix what comes before and after.
GPU_FN void mbarrier_arrive_if(bool counts, MBarrier& barrier, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile(
      "{\n.reg .b64 state;\n.reg .pred counts;\nsetp.ne.s32 counts, %1, 0;\n"
      "@counts mbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(&barrier)),
      "r"(static_cast<int>(counts))
      : "memory");
#else
  if (counts) host::mbarrier_arrive(barrier, loc);
#endif
}

/// mbarrier.arrive.expect_tx.shared::cta.b64 (PTX ISA, "mbarrier.arrive"; sm_90): has this phase
/// wait for `bytes` more, up to 2^20 - 1, then counts this thread.
GPU_FN void mbarrier_arrive_expect_tx(MBarrier& barrier, int bytes,
                                      [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
          shared_address(&barrier)),
      "r"(bytes)
      : "memory");
#else
  host::mbarrier_arrive_expect_tx(barrier, bytes, loc);
#endif
}

/// mbarrier.try_wait.parity.shared::cta.b64 (PTX ISA, "mbarrier.test_wait, mbarrier.try_wait";
/// sm_90; before it, mbarrier.test_wait, which does not suspend the thread), until it succeeds:
/// waits for the end of the phase of this parity, the one that runs now or the one before it. On a
/// fresh barrier parity 1 has ended.
GPU_FN void mbarrier_wait(MBarrier& barrier, int parity, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  std::uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#else
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#endif
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
#else
  host::mbarrier_wait(barrier, parity, loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
