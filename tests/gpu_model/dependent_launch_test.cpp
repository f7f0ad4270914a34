// Kernels that start before the ones before them have ended.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <stdexcept>

#include "tests/gpu_model/support.hpp"

namespace gpu_model::dependent_launch {
namespace {

using fp8_sdpa::ExecutorOptions;
using fp8_sdpa::StatusCode;

constexpr int kThreads = 64;
constexpr unsigned kBlocks = 5;

/// What an earlier kernel writes, and what each block of a later one has seen of it.
struct World {
  std::atomic<int> value = 1;
  int before[kBlocks] = {};
  int after[kBlocks][kThreads] = {};
  bool waits = true;
};

/// All of a block's threads wait, and are told what the first of them has seen before.
template <bool kEarly>
struct Later {
  struct Params {
    World* world;
  };
  using Shared = NoShared;
  static constexpr int kThreads = dependent_launch::kThreads;
  static constexpr int kMinBlocks = 1;
  static constexpr bool kUsesPdl = kEarly;
  GPU_FN static void run(const Params& p, Shared& /*unused*/) {
    World& world = *p.world;
    const unsigned block = gpu::block_idx().x;
    if (gpu::thread_idx() == 0) world.before[block] = world.value;
    gpu::sync_block();
    if (!world.waits && block == 3) return;
    gpu::pdl_wait();
    gpu::pdl_launch_dependents();
    world.after[block][gpu::thread_idx()] = world.value;
  }
};

struct Earlier {
  struct Params {
    World* world;
    int adds;
  };
  using Shared = NoShared;
  static constexpr int kThreads = 32;
  static constexpr int kMinBlocks = 1;
  GPU_FN static void run(const Params& p, Shared& /*unused*/) {
    if (gpu::thread_idx() == 0) p.world->value += p.adds;
    if (p.adds < 0 && gpu::thread_idx() == 0) gpu::sync_block();  // and nobody else comes
  }
};

void expect_seen(const World& world, int before, int after) {
  for (unsigned block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(world.before[block], before) << "block " << block;
    for (const int seen : world.after[block]) EXPECT_EQ(seen, after) << "block " << block;
  }
}

TEST(DependentLaunch, EarlierKernelsRunOnceWhenNobodyElseCan) {
  for (ExecutorOptions options : adversaries(2)) {
    World world;
    options.earlier_kernels = [&] { world.value += 10; };
    const auto status = gpu::launch<Later<true>>(dim3(kBlocks), {&world}, {.executor = &options});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(world.value, 11);
    EXPECT_EQ(*std::min_element(std::begin(world.before), std::end(world.before)), 1);
    for (const auto& block : world.after) {
      for (const int seen : block) EXPECT_EQ(seen, 11);
    }
  }
}

struct OneWarpWaits {
  struct Params {
    World* world;
  };
  using Shared = NoShared;
  static constexpr int kThreads = dependent_launch::kThreads;
  static constexpr int kMinBlocks = 1;
  static constexpr bool kUsesPdl = true;
  GPU_FN static void run(const Params& p, Shared& /*unused*/) {
    if (gpu::warp_idx() == 0) gpu::pdl_wait();
    p.world->after[0][gpu::thread_idx()] = p.world->value;
  }
};

// A kernel that lets a thread read too early is seen to, whatever the schedule.
TEST(DependentLaunch, WhoDoesNotWaitIsThereBefore) {
  for (ExecutorOptions options : adversaries(4)) {
    World world;
    options.earlier_kernels = [&] { world.value += 10; };
    const auto status = gpu::launch<OneWarpWaits>(dim3(1), {&world}, {.executor = &options});
    ASSERT_TRUE(status.ok()) << status.message();
    for (int thread = 0; thread < kThreads; ++thread) {
      EXPECT_EQ(world.after[0][thread], thread < 32 ? 11 : 1) << "thread " << thread;
    }
  }
}

TEST(DependentLaunch, BlocksOnSeveralOsThreadsWaitForOneRun) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    World world;
    const ExecutorOptions options{.os_threads = 4, .earlier_kernels = [&] { world.value += 10; }};
    const auto status = gpu::launch<Later<true>>(dim3(kBlocks), {&world}, {.executor = &options});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(world.value, 11);
    for (const auto& block : world.after) {
      for (const int seen : block) EXPECT_EQ(seen, 11);
    }
  }
}

TEST(DependentLaunch, OtherKernelsStartWhenTheyHaveEnded) {
  World world;
  const ExecutorOptions options{.os_threads = 1, .earlier_kernels = [&] { world.value += 10; }};
  const auto status = gpu::launch<Later<false>>(dim3(kBlocks), {&world}, {.executor = &options});
  ASSERT_TRUE(status.ok()) << status.message();
  expect_seen(world, 11, 11);
}

TEST(DependentLaunch, ABlockThatNeverWaitsIsAnError) {
  World world;
  world.waits = false;
  const ExecutorOptions options{.os_threads = 1};
  const auto status = gpu::launch<Later<true>>(dim3(kBlocks), {&world}, {.executor = &options});
  expect_kernel_error(status,
                      {"block (3, 0, 0): the block ended and never waited for earlier kernels"});
}

// As late as it may be: the first block of the second kernel sees nothing of the first before it
// waits.
TEST(DependentLaunch, OfTwoKernelsTheFirstRunsWhenTheSecondWaits) {
  World world;
  const ExecutorOptions options{.os_threads = 1,
                                .earlier_kernels = [&] { world.value = 3 * world.value; }};
  const auto status = gpu::launch_both<Earlier, Later<true>>(dim3(2), {&world, 5}, dim3(kBlocks),
                                                             {&world}, {.executor = &options});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(world.before[0], 1);
  EXPECT_EQ(world.after[0][0], 1 * 3 + 5 + 5);
  EXPECT_EQ(world.value, 13);
}

TEST(DependentLaunch, AnErrorOfTheFirstKernelIsTheLaunchs) {
  World world;
  const ExecutorOptions options{.os_threads = 1};
  const auto status = gpu::launch_both<Earlier, Later<true>>(dim3(1), {&world, -1}, dim3(kBlocks),
                                                             {&world}, {.executor = &options});
  expect_kernel_error(status, {"sync_block"});
}

TEST(DependentLaunch, WhatEarlierWorkThrowsIsReported) {
  World world;
  const ExecutorOptions options{
      .os_threads = 1, .earlier_kernels = [] { throw std::runtime_error("no such work"); }};
  const auto status = gpu::launch<Later<true>>(dim3(kBlocks), {&world}, {.executor = &options});
  expect_kernel_error(status, {"no such work"});
}

}  // namespace
}  // namespace gpu_model::dependent_launch
