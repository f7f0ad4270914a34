// Atomics in global memory: how blocks of a grid tell each other that something is there.
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include <atomic>

#include "gpu/host/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// atom.add.acq_rel.gpu.global.u32 (PTX ISA, "atom"; "Memory Consistency Model"): adds `value` and
/// returns what was there. Who sees another thread's addition sees what that thread had written, or
/// had seen through a barrier, before it.
GPU_FN std::uint32_t atomic_add_acq_rel(std::uint32_t* address, std::uint32_t value) {
#if GPU_ON_DEVICE
  std::uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(address)), "r"(value)
               : "memory");
  return before;
#else
  return std::atomic_ref<std::uint32_t>(*address).fetch_add(value, std::memory_order_acq_rel);
#endif
}

/// atom.cas.acq_rel.gpu.global.b64, likewise: if `expected` is there, writes `desired`; returns
/// what was. Where `condition` is false nothing is done, without a branch, and 0 returned.
GPU_FN std::uint64_t atomic_cas_acq_rel_if(bool condition, std::uint64_t* address,
                                           std::uint64_t expected, std::uint64_t desired) {
#if GPU_ON_DEVICE
  std::uint64_t before;
  asm volatile(
      "{\n.reg .pred swaps;\nsetp.ne.u32 swaps, %4, 0;\nmov.b64 %0, 0;\n"
      "@swaps atom.cas.acq_rel.gpu.global.b64 %0, [%1], %2, %3;\n}"
      : "=&l"(before)
      : "l"(__cvta_generic_to_global(address)), "l"(expected), "l"(desired),
        "r"(condition ? 1U : 0U)
      : "memory");
  return before;
#else
  if (!condition) return 0;
  std::atomic_ref<std::uint64_t>(*address).compare_exchange_strong(expected, desired,
                                                                   std::memory_order_acq_rel);
  return expected;
#endif
}

/// ld.acquire.gpu.global.u32 (PTX ISA, "ld"; sm_70): sees what a thread had written, or had seen
/// through a barrier, that has changed the word by an atomic of this file to what is there.
GPU_FN std::uint32_t load_acquire(const std::uint32_t* address) {
#if GPU_ON_DEVICE
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return value;
#else
  return std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(address))
      .load(std::memory_order_acquire);
#endif
}

/// load_acquire() until the word is `value`: waits for a block that runs, or has run, to write it.
/// No GPU promises that one that has not begun will begin meanwhile. After a minute or so the
/// kernel ends with an error.
GPU_FN void wait_for_word(const std::uint32_t* address, std::uint32_t value,
                          [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  constexpr int kMostPolls = 1 << 26;  // of a microsecond
  for (int polls = 0; load_acquire(address) != value; ++polls) {
    if (polls == kMostPolls) __trap();
  }
#else
  while (load_acquire(address) != value) host::wait_for_word(address, value, loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
