// A kernel with a bug to choose: warps of several blocks leave values in global memory and add to a
// counter, and the one that comes last sums up what all have left.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/gpu.hpp"

namespace planted {

enum class ArrivalBug {
  kNone,
  kArrivesTooEarly,  ///< one lane does before the others have written
  kReadsTooEarly,    ///< the others do after a shuffle, which orders no memory
};

struct ArrivalParams {
  std::uint32_t* counter;  ///< zero
  int* parts;              ///< (warps, 32)
  int* sums;               ///< (32), that of the lane opposite
};

template <ArrivalBug kBug>
struct Arrivals {
  using Params = ArrivalParams;
  struct Shared {};
  static constexpr int kThreads = 64;
  static constexpr int kMinBlocks = 1;
  static constexpr int kBlocks = 3;
  static constexpr int kWarps = kBlocks * kThreads / 32;

  GPU_FN static void run(const Params& p, Shared&) {
    const int lane = gpu::lane_idx();
    const int first = static_cast<int>(gpu::block_idx().x) * kThreads + gpu::warp_idx() * 32;
    p.parts[first + lane] = first * lane;
    if constexpr (kBug != ArrivalBug::kArrivesTooEarly) gpu::sync_warp();
    std::uint32_t before = 0;
    if (lane == 0) before = gpu::atomic_add_acq_rel(p.counter, 1);
    before = gpu::shfl(before, 0);
    if constexpr (kBug != ArrivalBug::kReadsTooEarly) gpu::sync_warp();
    if (before != kWarps - 1) return;
    int sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += p.parts[warp * 32 + (lane ^ 31)];
    p.sums[lane] = sum;
  }
};

/// Whether the kernel runs without an error and gives the right output.
template <ArrivalBug kBug>
bool arrivals_passes(const fp8_sdpa::ExecutorOptions& options) {
  using Kernel = Arrivals<kBug>;
  std::uint32_t counter = 0;
  std::vector<int> parts(Kernel::kWarps * 32, -1);
  std::vector<int> sums(32, -1);
  const auto status = gpu::launch<Kernel>(
      dim3(Kernel::kBlocks), {&counter, parts.data(), sums.data()}, {.executor = &options});
  std::vector<int> expected(32, 0);
  for (int i = 0; i < Kernel::kWarps * 32; ++i) expected[i % 32 ^ 31] += i / 32 * 32 * (i % 32);
  return status.ok() && sums == expected;
}

}  // namespace planted
