// bulk_load on the host executor: when its bytes land, what is seen before, what is refused.
#include <array>
#include <cstring>

#include "tests/gpu_model/bulk_support.hpp"

namespace gpu_model::bulk_load {
namespace {

using fp8_sdpa::Asynchrony;
using fp8_sdpa::ExecutorOptions;

constexpr int kBytes = 208;  // no multiple of 32

struct Source {
  alignas(16) std::array<unsigned char, kPlaces> bytes;
  std::array<unsigned char, kPlaces> seen;
  Source() {
    seen.fill(0);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(i * 7 % 251);
    }
  }
};

template <class Body>
Run on_a_warp(Body body) {
  return on_a_warp_with<Source>(body);
}

/// Thread 0 loads the first kBytes, as if called where this is.
GPU_FN void load(Source& source, Place& sm, int expected, gpu::Loc loc = GPU_LOC) {
  if (gpu::thread_idx() != 0) return;
  gpu::mbarrier_arrive_expect_tx(sm.full, expected, loc);
  gpu::bulk_load(sm.at, source.bytes.data(), kBytes, sm.full, loc);
}

TEST(BulkLoad, ArrivesBitForBitAndNowhereElse) {
  for (const auto& options : adversaries(3)) {
    Source source;
    const auto status = run_with(
        [](Source& source, Place& sm) {
          std::memset(sm.at + 16 * gpu::lane_idx(), 1, 16);
          gpu::fence_proxy_async();
          gpu::sync_warp();
          if (gpu::thread_idx() == 0) {
            gpu::mbarrier_arrive_expect_tx(sm.full, kBytes);
            gpu::bulk_load(sm.at + 48, &source.bytes[80], kBytes, sm.full);
          }
          gpu::mbarrier_wait(sm.full, 0);
          std::memcpy(&source.seen[16 * gpu::lane_idx()], sm.at + 16 * gpu::lane_idx(), 16);
        },
        source, options);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < kPlaces; ++i) {
      const bool copied = i >= 48 && i < 48 + kBytes;
      EXPECT_EQ(source.seen[i], copied ? source.bytes[80 + i - 48] : 1) << "byte " << i;
    }
  }
}

TEST(BulkLoad, ShowsNothingBeforeItsPhaseEndsOrAllAtOnce) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer stops at the read of a copy in flight";
  for (const auto asynchrony : kAsynchronies) {
    Source source;
    const auto status = run_with(
        [](Source& source, Place& sm) {
          load(source, sm, kBytes);
          if (gpu::thread_idx() == 0) std::memcpy(source.seen.data(), sm.at, kBytes);
          gpu::mbarrier_wait(sm.full, 0);
        },
        source, {.asynchrony = asynchrony, .os_threads = 1});
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < kBytes; ++i) {
      EXPECT_EQ(source.seen[i], asynchrony == Asynchrony::kLate ? 0xff : source.bytes[i]);
    }
  }
}

TEST(BulkLoad, SeesThatNobodyWaits) {
  const int line = __LINE__ + 1;
  expect_error_always(on_a_warp([](Source& source, Place& sm) { load(source, sm, kBytes); }),
                      {"wait", at_line(line)});
}

TEST(BulkLoad, CountsBytesExactly) {
  expect_error_always(on_a_warp([](Source& source, Place& sm) {
                        load(source, sm, kBytes + 16);
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"deadlock", "mbarrier_wait", "0 arrivals of 1", "16 bytes"});
  expect_error_always(on_a_warp([](Source& source, Place& sm) {
                        load(source, sm, kBytes - 16);
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"16 bytes more than expected landed"});
}

TEST(BulkLoad, SeesWritesToACopyInFlight) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer stops at the write itself";
  const int line = __LINE__ + 2;
  expect_error_always(on_a_warp([](Source& source, Place& sm) {
                        load(source, sm, kBytes);
                        if (gpu::thread_idx() == 0) sm.at[kBytes - 1] = 1;
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"the destination of the bulk_load that thread 0 issued",
                       "was written while that load was in flight", at_line(line)},
                      true);
}

template <bool kInitialises>
fp8_sdpa::Status run_unready(const ExecutorOptions& options) {
  Source source;
  return run_kernel<32, Place>(
      [](void* data, Place& sm) {
        if (gpu::thread_idx() != 0) return;
        if (kInitialises) gpu::mbarrier_init(sm.full, 1);
        gpu::bulk_load(sm.at, data, kBytes, sm.full);
      },
      &source, options);
}

TEST(BulkLoad, RefusesBarriersThatAreNotReady) {
  expect_error_always(run_unready<false>, {"bulk_load", "the mbarrier has not been initialised",
                                           "bulk_load_test.cpp:"});
  expect_error_always(run_unready<true>,
                      {"bulk_load", "fence_mbarrier_init", "bulk_load_test.cpp:"});
}

/// Expects that a body's bulk_load is refused in these words, and that its line is named.
template <class Body>
void expect_refusal(Body body, const std::string& words) {
  expect_error_always(on_a_warp(body), {"bulk_load", words, "bulk_load_test.cpp:"});
}

TEST(BulkLoad, RefusesWrongSizes) {
  expect_refusal(
      [](Source& source, Place& sm) { gpu::bulk_load(sm.at, source.bytes.data(), 0, sm.full); },
      "a size of 0 bytes is not a multiple of 16 above 0");
  expect_refusal(
      [](Source& source, Place& sm) { gpu::bulk_load(sm.at, source.bytes.data(), 24, sm.full); },
      "a size of 24 bytes is not a multiple of 16 above 0");
}

TEST(BulkLoad, RefusesMisalignedPlaces) {
  expect_refusal([](Source& source,
                    Place& sm) { gpu::bulk_load(sm.at + 8, source.bytes.data(), 32, sm.full); },
                 "misaligned destination: not a multiple of 16 bytes");
  expect_refusal(
      [](Source& source, Place& sm) { gpu::bulk_load(sm.at, &source.bytes[8], 32, sm.full); },
      "misaligned source: not a multiple of 16 bytes");
}

TEST(BulkLoad, RefusesPlacesOutsideSharedMemory) {
  expect_refusal(
      [](Source& source, Place& sm) {
        gpu::bulk_load(source.seen.data(), source.bytes.data(), 32, sm.full);
      },
      "the copy of 32 bytes is not inside the block's shared memory");
  expect_refusal(  // Place is padded to 1024 bytes
      [](Source& source, Place& sm) {
        gpu::bulk_load(sm.at + 1008, source.bytes.data(), 32, sm.full);
      },
      "the copy of 32 bytes is not inside the block's shared memory");
  expect_refusal(
      [](Source& source, Place& sm) {
        gpu::bulk_load(sm.at + kPlaces - 16, source.bytes.data(), 32, sm.full);
      },
      "the destination covers the mbarrier at byte 512");
}

}  // namespace
}  // namespace gpu_model::bulk_load
