#include "gpu/host/executor/ready_queue.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "gpu/host/executor/block.hpp"

namespace gpu::host {
namespace {

using fp8_sdpa::Schedule;

constexpr int kRanksPerWord = 64;
constexpr int kLanes = 32;

bool by_priority(Schedule schedule) {
  return schedule == Schedule::kThreadPriority || schedule == Schedule::kWarpPriority;
}

/// A random order of the threads, or of the warps with the lanes of each in theirs.
std::vector<int> draw_ranks(Schedule schedule, int threads, Random& random) {
  const int group = schedule == Schedule::kWarpPriority ? kLanes : 1;
  std::vector<int> order(static_cast<std::size_t>(threads / group));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span<int>(order));
  std::vector<int> rank(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) rank[t] = order[t / group] * group + t % group;
  return rank;
}

}  // namespace

void ReadyQueue::reset(Schedule schedule, int threads, Random& random) {
  schedule_ = schedule;
  random_ = &random;
  head_ = 0;
  size_ = 0;
  fibers_.resize(std::bit_ceil(static_cast<std::uint32_t>(threads)));
  if (by_priority(schedule)) {
    rank_ = draw_ranks(schedule, threads, random);
    ready_ranks_.assign((threads + kRanksPerWord - 1) / kRanksPerWord, 0);
  }
}

void ReadyQueue::push(Fiber* fiber) {
  switch (schedule_) {
    case Schedule::kFifo: fibers_[(head_ + size_) & (fibers_.size() - 1)] = fiber; break;
    case Schedule::kLifo:
    case Schedule::kRandom: fibers_[size_] = fiber; break;
    case Schedule::kThreadPriority:
    case Schedule::kWarpPriority: {
      const int rank = rank_[fiber->thread];
      fibers_[rank] = fiber;
      ready_ranks_[rank / kRanksPerWord] |= std::uint64_t{1} << rank % kRanksPerWord;
      break;
    }
  }
  ++size_;
}

Fiber* ReadyQueue::pop() {
  if (size_ == 0) return nullptr;
  --size_;
  switch (schedule_) {
    case Schedule::kFifo: return fibers_[head_++ & (fibers_.size() - 1)];
    case Schedule::kLifo: return fibers_[size_];
    case Schedule::kRandom: {
      const std::uint32_t chosen = random_->below(size_ + 1);
      return std::exchange(fibers_[chosen], fibers_[size_]);
    }
    case Schedule::kThreadPriority:
    case Schedule::kWarpPriority: break;
  }
  return pop_highest_priority();
}

Fiber* ReadyQueue::pop_highest_priority() {
  const auto word = std::find_if(ready_ranks_.begin(), ready_ranks_.end(),
                                 [](std::uint64_t ranks) { return ranks != 0; });
  const int bit = std::countr_zero(*word);
  *word &= *word - 1;
  return fibers_[(word - ready_ranks_.begin()) * kRanksPerWord + bit];
}

}  // namespace gpu::host
