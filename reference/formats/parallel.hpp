// A loop spread over OS threads.
#pragma once

#include <cstdint>
#include <functional>

namespace fp8_sdpa::reference {

/// The cores that this process may run on: its affinity where that is known, else the machine's.
int usable_cores();

/// Calls body(i) for every i in [0, count), on up to `threads` threads (0: usable_cores()), in no
/// particular order. Rethrows the first exception of a body after all threads have ended.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body,
                  int threads = 0);

inline constexpr std::int64_t kParallelChunk = std::int64_t{1} << 18;

/// Calls body(first, last) for chunks of [0, size) that together are all of it: on this thread
/// where there is one chunk, else on all cores. Chunks begin at multiples of kParallelChunk.
void parallel_chunks(std::int64_t size,
                     const std::function<void(std::int64_t first, std::int64_t last)>& body);

}  // namespace fp8_sdpa::reference
