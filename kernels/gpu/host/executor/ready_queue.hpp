// The threads of a block that could run now, handed out in the order of a Schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/executor_options.hpp"
#include "gpu/host/executor/random.hpp"

namespace gpu::host {

struct Fiber;

/// Holds each thread at most once.
class ReadyQueue {
 public:
  /// Empties the queue for a block of `threads` threads. Priority schedules draw their priorities
  /// from `random`, which is kept for kRandom's choices.
  void reset(fp8_sdpa::Schedule schedule, int threads, Random& random);

  bool empty() const { return size_ == 0; }
  void push(Fiber* fiber);
  /// Null when nobody is ready.
  Fiber* pop();

 private:
  Fiber* pop_highest_priority();

  fp8_sdpa::Schedule schedule_ = fp8_sdpa::Schedule::kFifo;
  Random* random_ = nullptr;
  /// kFifo: a ring of which [head_, head_ + size_) is used; its size is a power of two. kLifo and
  /// kRandom: the first size_ are used. Priorities: indexed by rank, and ready_ranks_ says which.
  std::vector<Fiber*> fibers_;
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
  std::vector<int> rank_;                   ///< of each thread; 0 goes first
  std::vector<std::uint64_t> ready_ranks_;  ///< a bit per rank
};

}  // namespace gpu::host
