// Launches: shapes, indices, shared memory, reuse of pooled blocks, and several at once.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/gpu_model/support.hpp"

namespace gpu_model {
namespace {

using fp8_sdpa::ExecutorOptions;
using fp8_sdpa::StatusCode;

TEST(Launch, EveryThreadOfEveryBlockRunsOnceAndKnowsItsPlace) {
  constexpr int kThreads = 96;
  const dim3 grid(5, 3, 2);
  for (const int os_threads : {1, 2, 7}) {
    std::vector<int> visits(kThreads * 30, 0);
    const ExecutorOptions options{.os_threads = os_threads};
    const auto status = run_kernel<kThreads>(
        [](void* data, NoShared&) {
          const uint3 b = gpu::block_idx();
          const uint3 g = gpu::grid_dim();
          if (g.x != 5 || g.y != 3 || g.z != 2) return;
          if (gpu::thread_idx() != gpu::warp_idx() * 32 + gpu::lane_idx()) return;
          const int block = static_cast<int>(b.x + g.x * (b.y + g.y * b.z));
          ++static_cast<int*>(data)[block * kThreads + gpu::thread_idx()];
        },
        visits.data(), options, grid);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const int count : visits) EXPECT_EQ(count, 1);
  }
}

TEST(Launch, RefusesWhatIsNoShapeForABlockOrAGrid) {
  const auto nothing = [](void*, NoShared&) {};
  const ExecutorOptions options;
  const auto expect_refused = [](const fp8_sdpa::Status& status, const char* part) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  expect_refused(run_kernel<48>(nothing), "48 threads");
  expect_refused(run_kernel<0>(nothing), "0 threads");
  expect_refused(run_kernel<1056>(nothing), "1056 threads");
  expect_refused(run_kernel<32>(nothing, nullptr, options, dim3(0)), "(0, 1, 1)");
  expect_refused(run_kernel<32>(nothing, nullptr, options, dim3(1, 65536)), "(1, 65536, 1)");
  expect_refused(run_kernel<32, char[228 * 1024]>([](void*, char(&)[228 * 1024]) {}),
                 "shared memory");
}

TEST(Launch, RefusesALaunchFromAKernel) {
  fp8_sdpa::Status inner;
  const auto status = run_kernel<32>(
      [](void* data, NoShared&) {
        if (gpu::thread_idx() != 0) return;
        *static_cast<fp8_sdpa::Status*>(data) = run_kernel<32>([](void*, NoShared&) {});
      },
      &inner);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(inner.code(), StatusCode::kUnsupported);
}

TEST(Launch, SharedMemoryIsAlignedAndStartsAsNanOrZero) {
  using Shared = std::uint32_t[300];
  struct Seen {
    std::uint32_t expected = 0;
    std::uintptr_t address[3][32] = {};
    int unlike[3][32] = {};
  };
  for (const bool poison : {true, false}) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      Seen seen{.expected = poison ? 0xffffffffU : 0U};
      const auto status = run_kernel<32, Shared>(
          [](void* data, Shared& shared) {
            auto& s = *static_cast<Seen*>(data);
            const unsigned block = gpu::block_idx().x;
            s.address[block][gpu::lane_idx()] = reinterpret_cast<std::uintptr_t>(&shared);
            for (int i = gpu::lane_idx(); i < 300; i += 32) {
              s.unlike[block][gpu::lane_idx()] += shared[i] != s.expected;
              shared[i] = 7;  // what the next block must not see
            }
          },
          &seen, {.poison_shared_memory = poison, .os_threads = 1}, dim3(3));
      ASSERT_TRUE(status.ok()) << status.message();
      for (int block = 0; block < 3; ++block) {
        for (int lane = 0; lane < 32; ++lane) {
          EXPECT_EQ(seen.address[block][lane] % gpu::kSharedAlignment, 0U);
          EXPECT_EQ(seen.unlike[block][lane], 0);
        }
      }
    }
  }
}

TEST(Launch, BlocksAreUsedAgainWithOtherSizes) {
  const auto body = [](void* data, int(&shared)[1024]) {
    const int t = gpu::thread_idx();
    shared[t] = t;
    gpu::sync_block();
    static_cast<int*>(data)[t] = shared[t ^ 1];
  };
  std::vector<int> out(1024);
  const auto check = [&](const fp8_sdpa::Status& status, int threads) {
    ASSERT_TRUE(status.ok()) << status.message();
    for (int t = 0; t < threads; ++t) EXPECT_EQ(out[t], t ^ 1);
    std::fill(out.begin(), out.end(), -1);
  };
  for (int repeat = 0; repeat < 3; ++repeat) {
    check(run_kernel<32, int[1024]>(body, out.data()), 32);
    check(run_kernel<1024, int[1024]>(body, out.data()), 1024);
    check(run_kernel<256, int[1024]>(body, out.data()), 256);
  }
}

TEST(Launch, FibersArePooled) {
  // A stack address of lane 0, launch after launch on one OS thread.
  std::uintptr_t first = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    std::uintptr_t stack = 0;
    const auto status = run_kernel<32>(
        [](void* data, NoShared&) {
          if (gpu::lane_idx() != 0) return;
          *static_cast<std::uintptr_t*>(data) =
              reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
        },
        &stack);
    ASSERT_TRUE(status.ok());
    if (repeat == 0) first = stack;
    EXPECT_EQ(stack, first);
  }
}

TEST(Launch, AnotherOsThreadMayUseAPooledBlock) {
  const auto body = [](void* data, NoShared&) {
    const int t = gpu::thread_idx();
    static_cast<int*>(data)[t] = gpu::shfl_xor(t, 3);
    gpu::sync_block();
    static_cast<int*>(data)[t] += gpu::thread_idx();
  };
  for (int repeat = 0; repeat < 8; ++repeat) {
    std::vector<int> out(64, -1);
    std::thread([&] { EXPECT_TRUE(run_kernel<64>(body, out.data()).ok()); }).join();
    for (int t = 0; t < 64; ++t) EXPECT_EQ(out[t], (t ^ 3) + t);
  }
}

TEST(Launch, SeveralAtOnce) {
  constexpr int kHostThreads = 4;
  std::atomic<int> wrong{0};
  std::vector<std::thread> hosts;
  for (int h = 0; h < kHostThreads; ++h) {
    hosts.emplace_back([h, &wrong] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        std::vector<int> out(64 * 6, -1);
        const auto status = run_kernel<64, int[64]>(
            [](void* data, int(&shared)[64]) {
              const int t = gpu::thread_idx();
              shared[t] = t;
              gpu::sync_block();
              static_cast<int*>(data)[gpu::block_idx().x * 64 + t] = shared[63 - t];
            },
            out.data(), {.os_threads = 2}, dim3(6));
        if (!status.ok()) ++wrong;
        for (int i = 0; i < 64 * 6; ++i) wrong += out[i] != 63 - i % 64;
        // One of the hosts also makes errors, which must not touch the others' launches.
        if (h == 0) {
          const auto broken = run_kernel<64>([](void*, NoShared&) {
            if (gpu::warp_idx() == 0) gpu::named_barrier_sync(1, 64);
          });
          wrong += broken.code() != StatusCode::kExecutorError;
        }
      }
    });
  }
  for (auto& host : hosts) host.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Launch, TheDefaultQueueHasDefaultOptions) {
  struct Body {
    void operator()(void* data, NoShared&) const { static_cast<int*>(data)[gpu::thread_idx()] = 1; }
  };
  std::vector<int> out(32, 0);
  const auto status = gpu::launch<KernelOf<Body, 32>>(dim3(1), {out.data()}, {});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, std::vector<int>(32, 1));
}

}  // namespace
}  // namespace gpu_model
