// A vote of a warp.
#pragma once

#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {
inline namespace GPU_BACKEND {

/// Whether any lane says so. From one lane at last, so that the compiler knows it is the same in
/// all.
GPU_FN bool any_lane(bool says) {
  int any = says ? 1 : 0;
#pragma unroll
  for (int lanes = 1; lanes < gpu::kWarpSize; lanes *= 2) any |= gpu::shfl_xor(any, lanes);
  return gpu::shfl(any, 0) != 0;
}

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::attention
