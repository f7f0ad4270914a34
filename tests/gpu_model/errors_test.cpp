// Every error of a kernel that the executor reports: provoked, named with threads, file and line,
// and survived.
#include <atomic>
#include <stdexcept>

#include "tests/gpu_model/support.hpp"

namespace gpu_model {
namespace {

using fp8_sdpa::ExecutorOptions;

constexpr int kWarp = gpu::kWarpSize;

/// One line, and on a device two instructions.
template <bool kFirst>
void meet() {
  gpu::sync_block();
}

/// A correct kernel that uses fibers of every warp: runs after each error, to show that the pool is
/// whole.
void expect_executor_works() {
  std::vector<int> sums(128, -1);
  const auto status = run_kernel<128, int[128]>(
      [](void* data, int(&shared)[128]) {
        const int t = gpu::thread_idx();
        shared[t] = t;
        gpu::sync_block();
        static_cast<int*>(data)[t] = shared[127 - t] + gpu::shfl_xor(t, 1);
      },
      sums.data());
  ASSERT_TRUE(status.ok()) << status.message();
  for (int t = 0; t < 128; ++t) EXPECT_EQ(sums[t], 127 - t + (t ^ 1));
}

class Errors : public testing::TestWithParam<fp8_sdpa::Schedule> {
 protected:
  void TearDown() override { expect_executor_works(); }
  ExecutorOptions options() const { return {.schedule = GetParam(), .seed = 7, .os_threads = 1}; }
};

INSTANTIATE_TEST_SUITE_P(Schedules, Errors, testing::ValuesIn(kSchedules), schedule_name);

TEST_P(Errors, DeadlockNamesEveryBlockedThread) {
  const int line = __LINE__ + 4;
  const auto status = run_kernel<128>(
      [](void*, NoShared&) {
        // Barrier 3 waits for the whole block, and the upper half never comes.
        if (gpu::warp_idx() < 2) gpu::named_barrier_sync(3, 128);
        if (gpu::warp_idx() == 2) gpu::named_barrier_sync(4, 64);
      },
      nullptr, options());
  expect_kernel_error(
      status, {"block (0, 0, 0)", "deadlock", "threads 0-63 wait in named_barrier_sync(3, 128)",
               at_line(line), "threads 64-95 wait in named_barrier_sync(4, 64)", at_line(line + 1),
               "threads 96-127 have exited"});
}

TEST_P(Errors, DivergentCollectives) {
  const int line = __LINE__ + 5;
  const auto status = run_kernel<kWarp>(
      [](void*, NoShared&) {
        int x = gpu::lane_idx();
        if (x < 8) {
          x = gpu::shfl_xor(x, 1);
        } else {
          x = gpu::shfl_xor(x, 2);
        }
      },
      nullptr, options());
  expect_kernel_error(status,
                      {"divergent warp", "shfl_xor", at_line(line), at_line(line + 2), "lane"});
}

TEST_P(Errors, DivergentBarrierInsideAWarp) {
  const auto status = run_kernel<64>(
      [](void*, NoShared&) {
        if (gpu::lane_idx() < 16) gpu::sync_block();
        gpu::sync_block();
      },
      nullptr, options());
  expect_kernel_error(status, {"divergent warp", "sync_block", "errors_test.cpp:"});
}

TEST_P(Errors, CollectiveAfterALaneExited) {
  const auto status = run_kernel<kWarp>(
      [](void*, NoShared&) {
        if (gpu::lane_idx() == 5) return;
        gpu::sync_warp();
      },
      nullptr, options());
  expect_kernel_error(status, {"lane 5", "sync_warp at ", "errors_test.cpp:"});
}

TEST_P(Errors, BlockBarrierAfterAWarpExited) {
  const int line = __LINE__ + 4;
  const auto status = run_kernel<96>(
      [](void*, NoShared&) {
        if (gpu::warp_idx() == 1) return;
        gpu::sync_block();
      },
      nullptr, options());
  expect_kernel_error(status, {"sync_block", at_line(line), "exit"});
}

TEST_P(Errors, BarrierCountMismatch) {
  const int line = __LINE__ + 4;
  const auto status = run_kernel<96>(
      [](void*, NoShared&) {
        if (gpu::warp_idx() == 0) {
          gpu::named_barrier_sync(1, 96);
        } else if (gpu::warp_idx() == 1) {
          gpu::named_barrier_arrive(1, 64);
        }
      },
      nullptr, options());
  expect_kernel_error(status, {"named_barrier_sync(1, 96)", at_line(line),
                               "named_barrier_arrive(1, 64)", at_line(line + 2), "threads"});
}

TEST_P(Errors, OneBarrierAtTwoInstructions) {
  const int line = __LINE__ + 4;
  const auto by_two_lines = run_kernel<64>(
      [](void*, NoShared&) {
        if (gpu::warp_idx() == 0) {
          gpu::named_barrier_sync(1, 64);
        } else {
          gpu::named_barrier_sync(1, 64);
        }
      },
      nullptr, options());
  expect_kernel_error(by_two_lines, {"named_barrier_sync(1, 64)", at_line(line), at_line(line + 2),
                                     "by another instruction"});
  const auto by_two_functions = run_kernel<64>(
      [](void*, NoShared&) {
        if (gpu::warp_idx() == 0) {
          meet<true>();
        } else {
          meet<false>();
        }
      },
      nullptr, options());
  expect_kernel_error(by_two_functions, {"sync_block", "by another instruction"});
}

TEST_P(Errors, WhoOnlyArrivesMayDoSoElsewhere) {
  const auto status = run_kernel<64>(
      [](void*, NoShared&) {
        if (gpu::warp_idx() == 0) gpu::named_barrier_arrive(1, 64);
        if (gpu::warp_idx() == 1) gpu::named_barrier_sync(1, 64);
        for (int i = 0; i < 3; ++i) gpu::sync_block();
      },
      nullptr, options());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(Errors, WarpArrivesTwice) {
  const auto status = run_kernel<64>(
      [](void*, NoShared&) {
        if (gpu::warp_idx() == 0) {
          gpu::named_barrier_arrive(2, 64);
          gpu::named_barrier_arrive(2, 64);
        }
      },
      nullptr, options());
  expect_kernel_error(status, {"comes twice", "threads 0-31", "named_barrier_arrive(2, 64)"});
}

TEST_P(Errors, BarrierNumber) {
  for (const int bad : {-1, 16}) {
    int id = bad;
    const auto status = run_kernel<kWarp>(
        [](void* data, NoShared&) { gpu::named_barrier_sync(*static_cast<int*>(data), 32); }, &id,
        options());
    expect_kernel_error(status, {"named_barrier_sync(" + std::to_string(bad) + ", 32)", "0 to 15",
                                 "thread ", "errors_test.cpp:"});
  }
}

TEST_P(Errors, BarrierThreads) {
  for (const int bad : {-32, 0, 33, 96}) {
    int threads = bad;
    const auto status = run_kernel<64>(
        [](void* data, NoShared&) { gpu::named_barrier_arrive(1, *static_cast<int*>(data)); },
        &threads, options());
    expect_kernel_error(status, {"named_barrier_arrive(1, " + std::to_string(bad) + ")",
                                 "multiple of 32", "64", "errors_test.cpp:"});
  }
}

TEST_P(Errors, KernelThrows) {
  const int line = __LINE__ + 3;
  const auto status = run_kernel<64>(
      [](void*, NoShared&) {
        gpu::sync_block();
        if (gpu::thread_idx() == 40) throw std::runtime_error("forty");
        gpu::sync_block();
      },
      nullptr, options());
  expect_kernel_error(status, {"thread 40 (warp 1, lane 8)", "exception", "forty", at_line(line)});
}

TEST_P(Errors, KernelThrowsNoStandardException) {
  const auto status = run_kernel<kWarp>([](void*, NoShared&) { throw 1; }, nullptr, options());
  expect_kernel_error(status, {"exception", "thread ", "the kernel's start"});
}

TEST_P(Errors, DestructorsRunInCancelledThreads) {
  struct Count {
    std::atomic<int>& alive;
    explicit Count(void* data) : alive(*static_cast<std::atomic<int>*>(data)) { ++alive; }
    ~Count() { --alive; }
  };
  std::atomic<int> alive{0};
  const auto status = run_kernel<64>(
      [](void* data, NoShared&) {
        const Count count(data);
        if (gpu::thread_idx() == 63) throw std::runtime_error("stop");
        gpu::sync_block();
      },
      &alive, options());
  expect_kernel_error(status, {"stop"});
  EXPECT_EQ(alive, 0);
}

TEST_P(Errors, KernelThatSwallowsItsCancellation) {
  const auto status = run_kernel<64>(
      [](void*, NoShared&) {
        if (gpu::thread_idx() == 63) throw std::runtime_error("stop");
        for (int i = 0; i < 3; ++i) {
          try {
            gpu::sync_block();
          } catch (...) {
            continue;
          }
        }
      },
      nullptr, options());
  EXPECT_EQ(status.code(), fp8_sdpa::StatusCode::kExecutorError);
}

TEST_P(Errors, WriteBehindSharedMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer stops at the write itself";
  const auto status = run_kernel<kWarp, float[20]>(
      [](void*, float(&shared)[20]) {
        float* p = shared;
        p[gpu::lane_idx()] = 1.0F;
      },
      nullptr, options());
  expect_kernel_error(status, {"48 bytes past the end", "80 bytes of shared memory"});
}

TEST_P(Errors, OneBlockOfMany) {
  ExecutorOptions several = options();
  several.os_threads = 3;
  const auto status = run_kernel<kWarp>(
      [](void*, NoShared&) {
        if (gpu::block_idx().x == 2 && gpu::block_idx().y == 1) throw std::runtime_error("here");
      },
      nullptr, several, dim3(4, 3));
  expect_kernel_error(status, {"block (2, 1, 0)", "here"});
}

}  // namespace
}  // namespace gpu_model
