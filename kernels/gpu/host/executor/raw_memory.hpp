// Copies and fills that no sanitizer sees. libasan and libtsan intercept memcpy and memset even in
// code that is not instrumented; the executor says itself which accesses a primitive makes.
#pragma once

#include <cstddef>
#include <cstdint>

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

/// A chunk: what TMA and wgmma move and swizzle shared memory by.
struct Chunk {
  std::uint64_t low;
  std::uint64_t high;
  bool operator==(const Chunk&) const = default;
};
inline constexpr std::size_t kChunkBytes = sizeof(Chunk);

inline Chunk raw_load(const void* from) {
  Chunk chunk;
#if defined(__x86_64__)
  asm volatile("movq (%2), %0\n\tmovq 8(%2), %1"
               : "=&r"(chunk.low), "=r"(chunk.high)
               : "r"(from)
               : "memory");
#else
  raw_copy(&chunk, from, sizeof chunk);
#endif
  return chunk;
}

inline void raw_store(void* to, const Chunk& chunk) {
#if defined(__x86_64__)
  asm volatile("movq %1, (%0)\n\tmovq %2, 8(%0)"
               :
               : "r"(to), "r"(chunk.low), "r"(chunk.high)
               : "memory");
#else
  raw_copy(to, &chunk, sizeof chunk);
#endif
}

}  // namespace gpu::host
