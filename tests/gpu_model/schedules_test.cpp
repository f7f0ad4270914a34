// What a schedule decides and what it must not: the order of the threads, and nothing else.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <set>

#include "tests/gpu_model/support.hpp"

namespace gpu_model::schedules {
namespace {

using fp8_sdpa::ExecutorOptions;
using fp8_sdpa::Schedule;

constexpr int kThreads = 128;

/// The order in which threads pass two points of a kernel, with a barrier between them.
struct Trace {
  std::array<int, 2 * kThreads> threads{};
  std::atomic<int> count{0};
};

std::array<int, 2 * kThreads> trace(const ExecutorOptions& options) {
  Trace result;
  const auto status = run_kernel<kThreads>(
      [](void* data, NoShared&) {
        auto& t = *static_cast<Trace*>(data);
        t.threads[t.count++] = gpu::thread_idx();
        gpu::sync_block();
        t.threads[t.count++] = gpu::thread_idx();
      },
      &result, options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(result.count, 2 * kThreads);
  return result.threads;
}

TEST(Schedules, NoThreadPassesABarrierEarly) {
  for (const auto& options : adversaries(20)) {
    const auto t = trace(options);
    for (int half = 0; half < 2; ++half) {
      const std::set<int> seen(t.begin() + half * kThreads, t.begin() + (half + 1) * kThreads);
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(kThreads));
    }
  }
}

TEST(Schedules, FifoIsRoundRobin) {
  const auto t = trace({.schedule = Schedule::kFifo, .os_threads = 1});
  std::array<int, kThreads> in_order{};
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_TRUE(std::equal(in_order.begin(), in_order.end(), t.begin()));
}

TEST(Schedules, LifoGoesBackwards) {
  const auto t = trace({.schedule = Schedule::kLifo, .os_threads = 1});
  std::array<int, kThreads> backwards{};
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  EXPECT_TRUE(std::equal(backwards.begin(), backwards.end(), t.begin()));
}

TEST(Schedules, SeedsGiveDifferentOrdersAndEqualSeedsEqualOnes) {
  for (const auto schedule :
       {Schedule::kRandom, Schedule::kThreadPriority, Schedule::kWarpPriority}) {
    const auto first = trace({.schedule = schedule, .seed = 1, .os_threads = 1});
    const auto again = trace({.schedule = schedule, .seed = 1, .os_threads = 1});
    const auto other = trace({.schedule = schedule, .seed = 2, .os_threads = 1});
    EXPECT_EQ(first, again);
    EXPECT_NE(first, other);
  }
}

TEST(Schedules, WarpPriorityKeepsWarpsTogether) {
  const auto t = trace({.schedule = Schedule::kWarpPriority, .seed = 3, .os_threads = 1});
  for (int first = 0; first < kThreads; first += gpu::kWarpSize) {
    for (int lane = 0; lane < gpu::kWarpSize; ++lane) {
      EXPECT_EQ(t[first + lane], t[first] + lane);
    }
  }
}

constexpr int kBlocks = 12;

/// The order in which the blocks of a grid begin.
std::array<int, kBlocks> block_order(const ExecutorOptions& options) {
  struct Blocks {
    std::array<int, kBlocks> order{};
    std::atomic<int> count{0};
  } blocks;
  const auto status = run_kernel<32>(
      [](void* data, NoShared&) {
        auto& b = *static_cast<Blocks*>(data);
        if (gpu::thread_idx() == 0) b.order[b.count++] = static_cast<int>(gpu::block_idx().x);
      },
      &blocks, options, dim3(kBlocks));
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(blocks.count, kBlocks);
  return blocks.order;
}

// A GPU promises no order: what is right only from the first block to the last must not look right.
TEST(Schedules, BlocksBeginInAnyOrder) {
  std::array<int, kBlocks> in_order{};
  std::iota(in_order.begin(), in_order.end(), 0);
  std::array<int, kBlocks> backwards{};
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  EXPECT_EQ(block_order({.schedule = Schedule::kFifo, .os_threads = 1}), in_order);
  EXPECT_EQ(block_order({.schedule = Schedule::kLifo, .os_threads = 1}), backwards);
  for (const auto schedule :
       {Schedule::kRandom, Schedule::kThreadPriority, Schedule::kWarpPriority}) {
    std::set<std::array<int, kBlocks>> orders;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      auto order = block_order({.schedule = schedule, .seed = seed, .os_threads = 1});
      EXPECT_EQ(order, block_order({.schedule = schedule, .seed = seed, .os_threads = 1}));
      orders.insert(order);
      std::sort(order.begin(), order.end());
      EXPECT_EQ(order, in_order);  // each block once
    }
    EXPECT_GT(orders.size(), 4U);
  }
}

/// How far ahead of the slowest warp the fastest gets: the number of arrivals it makes at barriers
/// that only its own warp waits for.
int lead(const ExecutorOptions& options) {
  struct Progress {
    std::array<std::atomic<int>, 4> steps{};
    std::atomic<int> lead{0};
  } progress;
  const auto status = run_kernel<kThreads>(
      [](void* data, NoShared&) {
        auto& p = *static_cast<Progress*>(data);
        for (int step = 0; step < 8; ++step) {
          gpu::named_barrier_sync(1 + gpu::warp_idx(), gpu::kWarpSize);
          if (gpu::lane_idx() == 0) {
            ++p.steps[gpu::warp_idx()];
            const auto [low, high] = std::minmax_element(p.steps.begin(), p.steps.end());
            p.lead = std::max<int>(p.lead, *high - *low);
          }
        }
      },
      &progress, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return progress.lead;
}

TEST(Schedules, WarpPriorityRunsAheadAsFarAsBarriersLetIt) {
  EXPECT_LE(lead({.schedule = Schedule::kFifo, .os_threads = 1}), 1);
  EXPECT_EQ(lead({.schedule = Schedule::kWarpPriority, .os_threads = 1}), 8);
}

TEST(Schedules, AdversariesPreemptTheThreadThatReleasesABarrier) {
  // In round robin the last thread to come to a barrier goes on first. An adversary must be able to
  // hold it back, or "the last one initialises, the others read" would look right.
  std::set<int> first_after;
  for (int seed = 1; seed <= 20; ++seed) {
    const auto t = trace({.schedule = Schedule::kThreadPriority,
                          .seed = static_cast<std::uint64_t>(seed),
                          .os_threads = 1});
    first_after.insert(t[kThreads] == t[kThreads - 1]);
  }
  EXPECT_EQ(first_after, std::set<int>{0});
}

TEST(Schedules, ResultsDoNotDependOnThem) {
  // Four phases of neighbour exchange through shared memory, shuffles and named barriers.
  std::vector<std::vector<int>> results;
  for (const auto& options : adversaries(10)) {
    std::vector<int> out(kThreads);
    const auto status = run_kernel<kThreads, int[2][kThreads]>(
        [](void* data, int(&shared)[2][kThreads]) {
          const int t = gpu::thread_idx();
          int value = t * t;
          for (int phase = 0; phase < 4; ++phase) {
            shared[phase % 2][t] = value;
            if (phase % 2 == 0) {
              gpu::sync_block();
            } else {
              gpu::named_barrier_sync(5, kThreads);
            }
            value = shared[phase % 2][(t + 37) % kThreads] + gpu::shfl(value, t + 3);
          }
          static_cast<int*>(data)[t] = value;
        },
        out.data(), options);
    ASSERT_TRUE(status.ok()) << status.message();
    results.push_back(out);
  }
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

}  // namespace
}  // namespace gpu_model::schedules
