// Copies and fills that no sanitizer sees. libasan and libtsan intercept memcpy and memset even in
// code that is not instrumented; the executor says itself which accesses a primitive makes.
#pragma once

#include <cstddef>

namespace gpu::host {

inline void raw_copy(void* dst, const void* src, std::size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
#else
  auto* to = static_cast<volatile char*>(dst);
  const auto* from = static_cast<const volatile char*>(src);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
#endif
}

inline void raw_fill(void* dst, unsigned char value, std::size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(dst), "+c"(bytes) : "a"(value) : "memory");
#else
  auto* to = static_cast<volatile unsigned char*>(dst);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = value;
#endif
}

}  // namespace gpu::host
