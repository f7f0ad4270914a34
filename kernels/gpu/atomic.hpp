// Atomics in global memory: how blocks of a grid tell each other that something is there.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include <atomic>

#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

template <class Word>
concept AtomicWord = std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>;

/// atom.add.acq_rel.gpu.global.u32, .u64 (PTX ISA, "atom"; "Memory Consistency Model"): adds
/// `value` and returns what was there. Who sees another thread's addition sees what that thread had
/// written, or had seen through a barrier, before it.
template <AtomicWord Word>
GPU_FN Word atomic_add_acq_rel(Word* address, std::type_identity_t<Word> value) {
#if GPU_ON_DEVICE
  Word before;
  if constexpr (sizeof(Word) == sizeof(std::uint64_t)) {
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(__cvta_generic_to_global(address)), "l"(value)
                 : "memory");
  } else {
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(address)), "r"(value)
                 : "memory");
  }
  return before;
#else
  const Word before = std::atomic_ref<Word>(*address).fetch_add(value, std::memory_order_acq_rel);
  host::schedule_point();
  return before;
#endif
}

/// atom.add.relaxed.gpu.global.u32, .u64, likewise, but who sees it sees nothing else by that: no
/// earlier store of the thread is waited for.
template <AtomicWord Word>
GPU_FN Word atomic_add_relaxed(Word* address, std::type_identity_t<Word> value) {
#if GPU_ON_DEVICE
  Word before;
  if constexpr (sizeof(Word) == sizeof(std::uint64_t)) {
    asm volatile("atom.add.relaxed.gpu.global.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(__cvta_generic_to_global(address)), "l"(value)
                 : "memory");
  } else {
    asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(address)), "r"(value)
                 : "memory");
  }
  return before;
#else
  const Word before = std::atomic_ref<Word>(*address).fetch_add(value, std::memory_order_relaxed);
  host::schedule_point();
  return before;
#endif
}

/// red.add.release.gpu.global.u32 (PTX ISA, "red"), as atomic_add_acq_rel() for whoever tells and
/// does not ask: what was there does not come back, and is not waited for.
GPU_FN void atomic_add_release(std::uint32_t* address, std::uint32_t value) {
#if GPU_ON_DEVICE
  asm volatile("red.add.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(address)),
               "r"(value)
               : "memory");
#else
  std::atomic_ref<std::uint32_t>(*address).fetch_add(value, std::memory_order_release);
  host::schedule_point();
#endif
}

/// red.max.relaxed.gpu.global.u32 (PTX ISA, "red"): keeps the larger, in the order of unsigned
/// integers, which is that of floats that are not negative. As relaxed as the addition.
GPU_FN void atomic_max_relaxed(std::uint32_t* address, std::uint32_t value) {
#if GPU_ON_DEVICE
  asm volatile("red.max.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(address)),
               "r"(value)
               : "memory");
#else
  std::atomic_ref<std::uint32_t> word(*address);
  std::uint32_t before = word.load(std::memory_order_relaxed);
  while (before < value && !word.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
  host::schedule_point();
#endif
}

/// atom.cas.acq_rel.gpu.global.b64, as atomic_add_acq_rel(): if `expected` is there, writes
/// `desired`; returns what was. Where `condition` is false nothing is done, without a branch, and 0
/// returned.
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
  host::schedule_point();
  return expected;
#endif
}

/// ld.acquire.gpu.global.u32, .u64 (PTX ISA, "ld"; sm_70): sees what a thread had written, or had
/// seen through a barrier, that has changed the word by an atomic of this file to what is there.
template <AtomicWord Word>
GPU_FN Word load_acquire(const Word* address) {
#if GPU_ON_DEVICE
  Word value;
  if constexpr (sizeof(Word) == sizeof(std::uint64_t)) {
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"(__cvta_generic_to_global(address))
                 : "memory");
  } else {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(address))
                 : "memory");
  }
  return value;
#else
  host::note_acquire();
  return std::atomic_ref<Word>(*const_cast<Word*>(address)).load(std::memory_order_acquire);
#endif
}

/// load_acquire() until the word is `value`: waits for a block that runs, or has run, to write it.
/// No GPU promises that one that has not begun will begin meanwhile. After a minute or so the
/// kernel ends with an error.
template <AtomicWord Word>
GPU_FN void wait_for_word(const Word* address, std::type_identity_t<Word> value,
                          [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  constexpr int kMostPolls = 1 << 26;  // of a microsecond
  for (int polls = 0; load_acquire(address) != value; ++polls) {
    if (polls == kMostPolls) __trap();
  }
#else
  while (load_acquire(address) != value) {
    host::wait_for_word({.address = address, .bytes = sizeof(Word), .value = value}, loc);
  }
#endif
}

/// st.relaxed.gpu.global.u32 (PTX ISA, "st"): a word that another block may read meanwhile. Who
/// sees it sees nothing else by that.
GPU_FN void store_relaxed(std::uint32_t* address, std::uint32_t value) {
#if GPU_ON_DEVICE
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(address)),
               "r"(value)
               : "memory");
#else
  std::atomic_ref<std::uint32_t>(*address).store(value, std::memory_order_relaxed);
  host::schedule_point();
#endif
}

/// ld.relaxed.gpu.global.u32 (PTX ISA, "ld"): a word that another block may store meanwhile.
GPU_FN std::uint32_t load_relaxed(const std::uint32_t* address) {
#if GPU_ON_DEVICE
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return value;
#else
  return std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(address))
      .load(std::memory_order_relaxed);
#endif
}

/// load_relaxed() until the word is not 0, as wait_for_word() waits: what is waited for is the
/// word itself. Returns it.
GPU_FN std::uint32_t wait_while_zero(const std::uint32_t* address,
                                     [[maybe_unused]] Loc loc = GPU_LOC) {
  std::uint32_t value = load_relaxed(address);
#if GPU_ON_DEVICE
  constexpr int kMostPolls = 1 << 26;  // of a microsecond
  for (int polls = 0; value == 0; ++polls) {
    if (polls == kMostPolls) __trap();
    value = load_relaxed(address);
  }
#else
  while (value == 0) {
    host::wait_for_word({.address = address, .bytes = sizeof value, .value = 0, .other = true},
                        loc);
    value = load_relaxed(address);
  }
#endif
  return value;
}

}  // namespace GPU_BACKEND
}  // namespace gpu
