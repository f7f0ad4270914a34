// Which of the two backends this translation unit is built for, and the words that differ between
// them.
//
// The same kernel text is compiled by nvcc for a CUDA device and by the host compiler for the host
// executor. Both results may live in one binary, so everything in namespace gpu sits in an inline
// namespace of its backend: equal names, different symbols.
#pragma once

#include <vector_types.h>

#include "gpu/types.hpp"

#if defined(__CUDACC__)
#define GPU_ON_DEVICE 1
#define GPU_BACKEND on_device
/// Marks a function that a kernel calls.
#define GPU_FN __device__ __forceinline__
/// Marks a function that both kernels and host code call.
#define GPU_SHARED_FN __host__ __device__ __forceinline__
#else
#include <source_location>
#define GPU_ON_DEVICE 0
#define GPU_BACKEND on_host
#define GPU_FN inline
#define GPU_SHARED_FN inline
#endif

namespace gpu {
inline namespace GPU_BACKEND {

#if GPU_ON_DEVICE
inline constexpr fp8_sdpa::Backend kBackend = fp8_sdpa::Backend::kDevice;

/// Where a primitive was called from: nothing on the device.
struct Loc {};
#define GPU_LOC \
  ::gpu::Loc {}
#else
inline constexpr fp8_sdpa::Backend kBackend = fp8_sdpa::Backend::kHost;

/// Where a primitive was called from, for the executor's reports.
using Loc = std::source_location;
/// The default argument of a primitive's last parameter: the line of the caller.
#define GPU_LOC std::source_location::current()
#endif

/// Threads of a warp, on every CUDA device so far and on the host executor.
inline constexpr int kWarpSize = 32;

}  // namespace GPU_BACKEND
}  // namespace gpu
