// mbarriers on the host executor: what is refused, and what a deadlock report says.
#include <cstring>

#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model {
namespace {

using fp8_sdpa::ExecutorOptions;

struct Barriers {
  alignas(64) unsigned char before[64];
  gpu::MBarrier at[2];
};

/// Runs a body on 64 threads; the barriers are theirs to initialise.
template <class Body>
Run on_two_warps(Body body) {
  return [body](const ExecutorOptions& options) {
    return run_kernel<64, Barriers>(body, nullptr, options);
  };
}

GPU_FN void init(gpu::MBarrier& barrier, int count) {
  if (gpu::thread_idx() == 0) {
    gpu::mbarrier_init(barrier, count);
    gpu::fence_mbarrier_init();
  }
  gpu::sync_block();
}

TEST(MBarrier, DeadlockNamesTheWaitAndWhatIsMissing) {
  const int line = __LINE__ + 4;
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[1], 64);
                        if (gpu::warp_idx() == 0) gpu::mbarrier_arrive(sm.at[1]);
                        gpu::mbarrier_wait(sm.at[1], 0);
                      }),
                      {"deadlock", "mbarrier_wait", at_line(line), "threads 0-63",
                       "phase 0 (parity 0)", "byte 72", "32 arrivals of 64", "0 bytes"});
}

TEST(MBarrier, DeadlockCountsBytesThatNeverLand) {
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[0], 1);
                        if (gpu::thread_idx() == 5) gpu::mbarrier_arrive_expect_tx(sm.at[0], 96);
                        gpu::mbarrier_wait(sm.at[0], 0);
                      }),
                      {"deadlock", "0 arrivals of 1", "96 bytes"});
}

TEST(MBarrier, RefusesMoreArrivalsThanAPhaseHas) {
  const int line = __LINE__ + 5;
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[0], 2);
                        if (gpu::thread_idx() == 0) gpu::mbarrier_arrive_expect_tx(sm.at[0], 16);
                        gpu::sync_block();
                        if (gpu::lane_idx() < 2) gpu::mbarrier_arrive(sm.at[0]);
                      }),
                      {"mbarrier_arrive", at_line(line), "more than 2 arrivals", "16 bytes"});
}

TEST(MBarrier, SeesAPhaseThatAWaiterMissed) {
  // Two phases end while a thread waits for the first: it may find the barrier as it was.
  const auto run = on_two_warps([](void*, Barriers& sm) {
    init(sm.at[0], 1);
    if (gpu::warp_idx() == 0) {
      gpu::mbarrier_wait(sm.at[0], 0);
    } else if (gpu::lane_idx() < 2) {
      gpu::mbarrier_arrive(sm.at[0]);
    }
  });
  int found = 0;
  for (const auto& options : adversaries(10)) {
    const auto status = run(options);
    if (status.ok()) continue;
    ++found;
    expect_kernel_error(status, {"mbarrier_wait"});
  }
  EXPECT_GT(found, 0);
}

TEST(MBarrier, RefusesWhatIsNoBarrier) {
  expect_error_always(on_two_warps([](void*, Barriers& sm) { gpu::mbarrier_arrive(sm.at[0]); }),
                      {"mbarrier_arrive", "has not been initialised", "mbarrier_test.cpp:"});
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[0], 64);
                        init(sm.at[0], 64);
                      }),
                      {"mbarrier_init", "is in use"});
  expect_error_always(on_two_warps([](void*, Barriers&) {
                        gpu::MBarrier local{};
                        gpu::mbarrier_init(local, 1);
                      }),
                      {"mbarrier_init", "not in the block's shared memory"});
}

TEST(MBarrier, RefusesImpossibleNumbers) {
  expect_error_always(on_two_warps([](void*, Barriers& sm) { gpu::mbarrier_init(sm.at[0], 0); }),
                      {"mbarrier_init", "0 arrivals"});
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[0], 1);
                        gpu::mbarrier_wait(sm.at[0], 2);
                      }),
                      {"mbarrier_wait", "parity 2"});
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[0], 64);
                        gpu::mbarrier_arrive_expect_tx(sm.at[0], 1 << 20);
                      }),
                      {"mbarrier_arrive_expect_tx", "1048576 bytes"});
}

TEST(MBarrier, SeesOrdinaryStoresIntoABarrier) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer stops at the store itself";
  expect_error_always(on_two_warps([](void*, Barriers& sm) {
                        init(sm.at[0], 64);
                        if (gpu::thread_idx() == 0) sm.at[0].word = 0;
                        gpu::sync_block();
                        gpu::mbarrier_arrive(sm.at[0]);
                      }),
                      {"mbarrier_arrive", "overwritten", "byte 64"});
}

TEST(MBarrier, FreshBarriersHaveEndedParityOne) {
  for (const auto& options : adversaries(3)) {
    const auto status = on_two_warps([](void*, Barriers& sm) {
      init(sm.at[0], 64);
      gpu::mbarrier_wait(sm.at[0], 1);
      gpu::mbarrier_arrive(sm.at[0]);
      gpu::mbarrier_wait(sm.at[0], 0);
    })(options);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace
}  // namespace gpu_model
