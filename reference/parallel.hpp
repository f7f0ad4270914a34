// A loop spread over OS threads.
#pragma once

#include <cstdint>
#include <functional>

namespace fp8_sdpa::reference {

/// Calls body(i) for every i in [0, count), on up to `threads` threads (0: one per core), in no
/// particular order. Rethrows the first exception of a body after all threads have ended.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body,
                  int threads = 0);

}  // namespace fp8_sdpa::reference
