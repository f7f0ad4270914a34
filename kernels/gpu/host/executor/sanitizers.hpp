// What the executor tells AddressSanitizer and ThreadSanitizer: where stacks are, which memory is
// off limits, and what each primitive orders. Empty functions where no sanitizer is on.
//
// Runtime .cpp files alone include this. They are not built with -fsanitize=thread; the build
// defines FP8_SDPA_TSAN=1 for them where the rest of the program is.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define GPU_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GPU_HOST_ASAN 1
#endif
#endif
#ifndef GPU_HOST_ASAN
#define GPU_HOST_ASAN 0
#endif

#if defined(FP8_SDPA_TSAN) && FP8_SDPA_TSAN
#define GPU_HOST_TSAN 1
#else
#define GPU_HOST_TSAN 0
#endif

#if GPU_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if GPU_HOST_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_set_fiber_name(void* fiber, const char* name);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void __tsan_func_entry(void* caller);
void __tsan_func_exit();
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace gpu::host {

inline constexpr bool kAsan = GPU_HOST_ASAN != 0;
inline constexpr bool kTsan = GPU_HOST_TSAN != 0;

namespace asan {

inline void poison([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if GPU_HOST_ASAN
  __asan_poison_memory_region(p, bytes);
#endif
}

inline void unpoison([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if GPU_HOST_ASAN
  __asan_unpoison_memory_region(p, bytes);
#endif
}

inline void start_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                         [[maybe_unused]] std::size_t size) {
#if GPU_HOST_ASAN
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
#endif
}

inline void finish_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                          [[maybe_unused]] std::size_t* size) {
#if GPU_HOST_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, bottom, size);
#endif
}

}  // namespace asan

namespace tsan {

/// Fibers are switched without ordering anything: only primitives order.
inline void switch_to([[maybe_unused]] void* fiber) {
#if GPU_HOST_TSAN
  constexpr unsigned kNoSync = 1;
  __tsan_switch_to_fiber(fiber, kNoSync);
#endif
}

inline void* current_fiber() {
#if GPU_HOST_TSAN
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}

/// A new fiber, ordered after everything that the caller has done. Costs a third of a millisecond.
inline void* create_fiber() {
#if GPU_HOST_TSAN
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}

/// What reports call the fiber.
inline void set_name([[maybe_unused]] void* fiber, [[maybe_unused]] const char* name) {
#if GPU_HOST_TSAN
  __tsan_set_fiber_name(fiber, name);
#endif
}

inline void destroy_fiber([[maybe_unused]] void* fiber) {
#if GPU_HOST_TSAN
  if (fiber != nullptr) __tsan_destroy_fiber(fiber);
#endif
}

/// What this fiber has done so far happens before what follows an acquire of the same token.
inline void release([[maybe_unused]] void* token) {
#if GPU_HOST_TSAN
  __tsan_release(token);
#endif
}

inline void acquire([[maybe_unused]] void* token) {
#if GPU_HOST_TSAN
  __tsan_acquire(token);
#endif
}

/// One copy's accesses, shown in reports as made by a function called from `caller`.
inline void copy_accesses([[maybe_unused]] void* caller, [[maybe_unused]] void* dst,
                          [[maybe_unused]] std::size_t dst_bytes, [[maybe_unused]] const void* src,
                          [[maybe_unused]] std::size_t src_bytes) {
#if GPU_HOST_TSAN
  __tsan_func_entry(caller);
  __tsan_read_range(const_cast<void*>(src), src_bytes);
  __tsan_write_range(dst, dst_bytes);
  __tsan_func_exit();
#endif
}

/// Accesses made in its life are shown in reports as made by a function called from `caller`.
class Frame {
 public:
  explicit Frame([[maybe_unused]] void* caller) {
#if GPU_HOST_TSAN
    __tsan_func_entry(caller);
#endif
  }
  ~Frame() {
#if GPU_HOST_TSAN
    __tsan_func_exit();
#endif
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
};

inline void read([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if GPU_HOST_TSAN
  __tsan_read_range(const_cast<void*>(p), bytes);
#endif
}

inline void write([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#if GPU_HOST_TSAN
  __tsan_write_range(p, bytes);
#endif
}

/// Hides the executor's own bookkeeping while a kernel's thread is inside it: libtsan intercepts
/// malloc and memcpy even in code that is not instrumented, and the linker may have picked an
/// instrumented copy of an inline function.
class Quiet {
 public:
  Quiet() {
#if GPU_HOST_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~Quiet() {
#if GPU_HOST_TSAN
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

}  // namespace tsan
}  // namespace gpu::host
