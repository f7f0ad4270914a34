// What the executor's tests share: kernels from lambdas, option sets, and checks of error messages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpu.hpp"

namespace gpu_model {

inline constexpr fp8_sdpa::Schedule kSchedules[] = {
    fp8_sdpa::Schedule::kFifo, fp8_sdpa::Schedule::kLifo, fp8_sdpa::Schedule::kRandom,
    fp8_sdpa::Schedule::kThreadPriority, fp8_sdpa::Schedule::kWarpPriority};

/// The name of a parameterised test.
inline std::string schedule_name(const testing::TestParamInfo<fp8_sdpa::Schedule>& info) {
  constexpr const char* kNames[] = {"fifo", "lifo", "random", "thread_priority", "warp_priority"};
  return kNames[static_cast<int>(info.param)];
}

inline constexpr fp8_sdpa::Asynchrony kAsynchronies[] = {fp8_sdpa::Asynchrony::kLate,
                                                         fp8_sdpa::Asynchrony::kEager};

/// Every schedule and asynchrony; the random ones under seeds 1 to `seeds`.
inline std::vector<fp8_sdpa::ExecutorOptions> adversaries(int seeds) {
  std::vector<fp8_sdpa::ExecutorOptions> all;
  for (const auto schedule : kSchedules) {
    const bool random =
        schedule != fp8_sdpa::Schedule::kFifo && schedule != fp8_sdpa::Schedule::kLifo;
    for (const auto asynchrony : kAsynchronies) {
      for (int seed = 1; seed <= (random ? seeds : 1); ++seed) {
        all.push_back({.schedule = schedule,
                       .seed = static_cast<std::uint64_t>(seed),
                       .asynchrony = asynchrony,
                       .os_threads = 1});
      }
    }
  }
  return all;
}

/// Whether a sanitizer ends the program at an access that races with an asynchronous copy, or that
/// leaves shared memory: then it is for races/ to show it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

struct NoShared {};

/// A kernel whose body is the call operator of Body, a class without state: one type for each test,
/// so that kernels read like lambdas.
template <class Body, int kThreadsOfBlock, class SharedMemory = NoShared>
struct KernelOf {
  struct Params {
    void* data;
  };
  using Shared = SharedMemory;
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kMinBlocks = 1;
  GPU_FN static void run(const Params& p, Shared& shared) { Body{}(p.data, shared); }
};

/// Runs a captureless lambda `void(void* data, SharedMemory&)` as a kernel on the host executor.
template <int kThreads, class SharedMemory = NoShared, class Body>
fp8_sdpa::Status run_kernel(Body, void* data = nullptr,
                            const fp8_sdpa::ExecutorOptions& options = {.os_threads = 1},
                            dim3 grid = dim3(1)) {
  return gpu::launch<KernelOf<Body, kThreads, SharedMemory>>(grid, {data}, {.executor = &options});
}

/// A line of the file that calls, as reports name it.
inline std::string at_line(int line,
                           const std::source_location& here = std::source_location::current()) {
  const std::string_view path = here.file_name();
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line);
}

/// Expects an executor error whose message holds every part.
inline void expect_kernel_error(const fp8_sdpa::Status& status,
                                const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), fp8_sdpa::StatusCode::kExecutorError) << status.message();
  for (const auto& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no \"" << part << "\" in: " << status.message();
  }
}

}  // namespace gpu_model
