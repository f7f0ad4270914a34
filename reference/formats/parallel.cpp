#include "reference/formats/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace fp8_sdpa::reference {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body, int threads) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const std::int64_t wanted = std::min<std::int64_t>(threads > 0 ? threads : usable_cores(), count);
  std::vector<std::jthread> helpers;
  helpers.reserve(static_cast<std::size_t>(std::max<std::int64_t>(wanted, 1)));
  for (std::int64_t i = 1; i < wanted; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: the ones there are do the work
    }
  }
  work();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

void parallel_chunks(std::int64_t size,
                     const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (size <= kParallelChunk) return body(0, size);
  parallel_for((size + kParallelChunk - 1) / kParallelChunk, [&](std::int64_t chunk) {
    body(chunk * kParallelChunk, std::min(size, (chunk + 1) * kParallelChunk));
  });
}

}  // namespace fp8_sdpa::reference
