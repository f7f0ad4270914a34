// What the tests of the Hopper primitives share: kernels with a tensor map, and every adversary.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/hopper.hpp"
#include "tests/gpu_model/support.hpp"

namespace gpu_model {

/// Whether ThreadSanitizer watches: a race that a test makes is then for races/ to show.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kRacesReported = true;
#else
inline constexpr bool kRacesReported = false;
#endif

/// As KernelOf, with a tensor map where a device would want it.
template <class Body, int kThreadsOfBlock, class SharedMemory>
struct MappedKernelOf {
  struct Params {
    gpu::TensorMap map;
    void* data;
  };
  using Shared = SharedMemory;
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kMinBlocks = 1;
  GPU_FN static void run(const Params& p, Shared& shared) { Body{}(p.map, p.data, shared); }
};

/// Runs a captureless lambda `void(const gpu::TensorMap&, void* data, SharedMemory&)`.
template <int kThreads, class SharedMemory, class Body>
fp8_sdpa::Status run_mapped(Body, const gpu::TensorShape& shape, void* data,
                            const fp8_sdpa::ExecutorOptions& options) {
  using Kernel = MappedKernelOf<Body, kThreads, SharedMemory>;
  typename Kernel::Params params{{}, data};
  if (auto status = gpu::encode_tensor_map(shape, params.map); !status.ok()) return status;
  return gpu::launch<Kernel>(dim3(1), params, {.executor = &options});
}

/// A dense matrix of bytes and a box of whole rows.
inline gpu::TensorShape byte_matrix(const void* base, int rows, int columns, int box_rows) {
  gpu::TensorShape shape;
  shape.base = base;
  shape.sizes = {static_cast<unsigned>(columns), static_cast<unsigned>(rows), 0, 0};
  shape.strides = {0, static_cast<unsigned>(columns), 0, 0};
  shape.box = {static_cast<unsigned>(columns), static_cast<unsigned>(box_rows), 0, 0};
  return shape;
}

using Run = std::function<fp8_sdpa::Status(const fp8_sdpa::ExecutorOptions&)>;

/// Expects this error under every schedule, with copies that land late and at once. With late_only
/// it takes copies that are certain to be in flight until somebody waits for them.
inline void expect_error_always(const Run& run, const std::vector<std::string>& parts,
                                bool late_only = false) {
  for (const auto& options : adversaries(3)) {
    const bool certainly_late = options.asynchrony == fp8_sdpa::Asynchrony::kLate &&
                                options.schedule != fp8_sdpa::Schedule::kRandom;
    if (late_only && !certainly_late) continue;
    SCOPED_TRACE("schedule " + std::to_string(static_cast<int>(options.schedule)) + " seed " +
                 std::to_string(options.seed) + " asynchrony " +
                 std::to_string(static_cast<int>(options.asynchrony)));
    expect_kernel_error(run(options), parts);
  }
}

}  // namespace gpu_model
