// cp.async: when copies land, what is seen before, what is refused.
#include <cmath>
#include <cstring>

#include "tests/gpu_model/support.hpp"

namespace gpu_model {
namespace {

using fp8_sdpa::Asynchrony;
using fp8_sdpa::ExecutorOptions;

constexpr int kLanes = gpu::kWarpSize;

struct Copies {
  alignas(16) unsigned char source[4][kLanes][16];
  unsigned char seen[4][kLanes][16];  ///< per step of the test
};

struct Stages {
  alignas(16) unsigned char at[4][kLanes][16];
};

void fill(Copies& copies) {
  int next = 1;
  for (auto& stage : copies.source) {
    for (auto& chunk : stage) {
      for (auto& byte : chunk) byte = static_cast<unsigned char>(next++ % 251 + 1);
    }
  }
}

int differing(const unsigned char (&a)[kLanes][16], const unsigned char (&b)[kLanes][16]) {
  int count = 0;
  for (int lane = 0; lane < kLanes; ++lane) count += std::memcmp(a[lane], b[lane], 16) != 0;
  return count;
}

TEST(CpAsync, LandsAtTheWaitOrAtOnce) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer stops at the read of a destination in flight";
  for (const auto asynchrony : kAsynchronies) {
    Copies copies{};
    fill(copies);
    const auto status = run_kernel<kLanes, Stages>(
        [](void* data, Stages& shared) {
          auto& c = *static_cast<Copies*>(data);
          const int lane = gpu::lane_idx();
          gpu::cp_async_16(shared.at[0][lane], c.source[0][lane]);
          gpu::cp_async_commit();
          std::memcpy(c.seen[0][lane], shared.at[0][lane], 16);
          gpu::cp_async_wait<0>();
          std::memcpy(c.seen[1][lane], shared.at[0][lane], 16);
        },
        &copies, {.asynchrony = asynchrony, .os_threads = 1});
    ASSERT_TRUE(status.ok()) << status.message();
    if (asynchrony == Asynchrony::kLate) {
      for (const auto& chunk : copies.seen[0]) {
        for (const auto byte : chunk) EXPECT_EQ(byte, 0xff);
      }
    } else {
      EXPECT_EQ(differing(copies.seen[0], copies.source[0]), 0);
    }
    EXPECT_EQ(differing(copies.seen[1], copies.source[0]), 0);
  }
}

TEST(CpAsync, WaitLeavesTheYoungestGroupsInFlight) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer stops at the read of a destination in flight";
  Copies copies{};
  fill(copies);
  const auto status = run_kernel<kLanes, Stages>(
      [](void* data, Stages& shared) {
        auto& c = *static_cast<Copies*>(data);
        const int lane = gpu::lane_idx();
        gpu::cp_async_commit();  // an empty group counts
        for (int stage = 0; stage < 3; ++stage) {
          gpu::cp_async_16(shared.at[stage][lane], c.source[stage][lane]);
          gpu::cp_async_commit();
        }
        gpu::cp_async_wait<2>();
        for (int stage = 0; stage < 3; ++stage) {
          std::memcpy(c.seen[stage][lane], shared.at[stage][lane], 16);
        }
        gpu::cp_async_wait<0>();
        std::memcpy(c.seen[3][lane], shared.at[2][lane], 16);
      },
      &copies, {.asynchrony = Asynchrony::kLate, .os_threads = 1});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(differing(copies.seen[0], copies.source[0]), 0);
  EXPECT_EQ(differing(copies.seen[1], copies.source[1]), kLanes);
  EXPECT_EQ(differing(copies.seen[2], copies.source[2]), kLanes);
  EXPECT_EQ(differing(copies.seen[3], copies.source[2]), 0);
}

TEST(CpAsync, ZfillCopiesWhatIsThereAndZeroesTheRest) {
  for (const auto asynchrony : kAsynchronies) {
    Copies copies{};
    fill(copies);
    const auto status = run_kernel<kLanes, Stages>(
        [](void* data, Stages& shared) {
          auto& c = *static_cast<Copies*>(data);
          const int lane = gpu::lane_idx();
          // Of what is not there, the source may be anything that is aligned.
          const void* source = lane % 3 == 0 ? nullptr : c.source[0][lane];
          gpu::cp_async_16_zfill(shared.at[0][lane], source, lane % 3 != 0);
          gpu::cp_async_commit();
          gpu::cp_async_wait<0>();
          std::memcpy(c.seen[0][lane], shared.at[0][lane], 16);
        },
        &copies, {.asynchrony = asynchrony, .os_threads = 1});
    ASSERT_TRUE(status.ok()) << status.message();
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int byte = 0; byte < 16; ++byte) {
        EXPECT_EQ(copies.seen[0][lane][byte], lane % 3 != 0 ? copies.source[0][lane][byte] : 0);
      }
    }
  }
}

/// Runs a body whose one cp.async is wrong, and expects its line and the words.
template <class Body>
void expect_refused(Body body, const std::vector<std::string>& words) {
  for (const auto asynchrony : kAsynchronies) {
    Copies copies{};
    const auto status =
        run_kernel<kLanes, Stages>(body, &copies, {.asynchrony = asynchrony, .os_threads = 1});
    expect_kernel_error(status, words);
    expect_kernel_error(status, {"thread 0 (warp 0, lane 0)", "cp_async_test.cpp:"});
  }
}

TEST(CpAsync, RefusesMisalignedAddresses) {
  expect_refused(
      [](void* data, Stages& shared) {
        gpu::cp_async_16(shared.at[0][0] + 8, static_cast<Copies*>(data)->source[0][0]);
      },
      {"cp_async_16 at", "misaligned destination", "16"});
  expect_refused(
      [](void* data, Stages& shared) {
        gpu::cp_async_16(shared.at[0][0], static_cast<Copies*>(data)->source[0][0] + 4);
      },
      {"cp_async_16 at", "misaligned source", "16"});
}

TEST(CpAsync, RefusesADestinationOutsideSharedMemory) {
  expect_refused(
      [](void* data, Stages& shared) {
        gpu::cp_async_16(shared.at + 4, static_cast<Copies*>(data)->source[0][0]);
      },
      {"outside the block's shared memory"});
  expect_refused(
      [](void* data, Stages&) {
        auto& c = *static_cast<Copies*>(data);
        gpu::cp_async_16(c.source[1][0], c.source[0][0]);
      },
      {"outside the block's shared memory"});
}

TEST(CpAsync, WorkInFlightAtExit) {
  expect_refused(
      [](void* data, Stages& shared) {
        const int lane = gpu::lane_idx();
        gpu::cp_async_16(shared.at[0][lane], static_cast<Copies*>(data)->source[0][lane]);
        gpu::cp_async_commit();
      },
      {"exits with 1 cp.async copies in flight"});
}

TEST(CpAsync, UncommittedWorkAtExit) {
  expect_refused(
      [](void* data, Stages& shared) {
        auto& c = *static_cast<Copies*>(data);
        const int lane = gpu::lane_idx();
        gpu::cp_async_16(shared.at[0][lane], c.source[0][lane]);
        gpu::cp_async_commit();
        gpu::cp_async_16(shared.at[1][lane], c.source[1][lane]);
        gpu::cp_async_16(shared.at[2][lane], c.source[2][lane]);
        gpu::cp_async_wait<0>();  // asks for committed groups only
      },
      {"exits with 2 cp.async copies in flight"});
}

TEST(CpAsync, WriteToADestinationInFlight) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer stops at the write itself";
  Copies copies{};
  const int line = __LINE__ + 5;
  const auto status = run_kernel<kLanes, Stages>(
      [](void* data, Stages& shared) {
        const int lane = gpu::lane_idx();
        auto& c = *static_cast<Copies*>(data);
        gpu::cp_async_16(shared.at[0][lane], c.source[0][lane]);
        gpu::cp_async_commit();
        shared.at[0][lane][3] = 1;
        gpu::cp_async_wait<0>();
      },
      &copies, {.asynchrony = Asynchrony::kLate, .os_threads = 1});
  expect_kernel_error(status, {"cp_async_test.cpp:" + std::to_string(line),
                               "written while that copy was in flight", "thread 0"});
}

TEST(CpAsync, AnErrorLeavesNothingInFlight) {
  Copies copies{};
  fill(copies);
  const auto leave_in_flight = [](void* data, Stages& shared) {
    const int lane = gpu::lane_idx();
    gpu::cp_async_16(shared.at[0][lane], static_cast<Copies*>(data)->source[0][lane]);
  };
  EXPECT_FALSE((run_kernel<kLanes, Stages>(leave_in_flight, &copies).ok()));
  const auto status = run_kernel<kLanes, Stages>(
      [](void* data, Stages& shared) {
        const int lane = gpu::lane_idx();
        shared.at[0][lane][0] = 1;  // the same address, in flight when the last kernel ended
        static_cast<Copies*>(data)->seen[0][lane][0] = shared.at[0][lane][0];
      },
      &copies);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(copies.seen[0][31][0], 1);
}

}  // namespace
}  // namespace gpu_model
