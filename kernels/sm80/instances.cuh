// The sm80 kernels, for one backend. The build writes a file for nvcc and one for the host compiler
// that include this text.
#pragma once

#include "sm80/kernel.cuh"
#include "sm80/sm80.hpp"

namespace fp8_sdpa::sm80 {

template <Backend kBackend>
Status launch(const Problem& problem, const gpu::Queue& queue) {
  const dim3 grid(attention::forward_blocks(problem, groups::kTileM));
  const auto params = attention::forward_params(problem, groups::kTileM);
  return problem.q.dtype == Dtype::kE4M3
             ? gpu::launch<Kernel<tag::sm80_mma, Dtype::kE4M3>>(grid, params, queue)
             : gpu::launch<Kernel<tag::sm80_mma, Dtype::kE5M2>>(grid, params, queue);
}

template Status launch<gpu::kBackend>(const Problem&, const gpu::Queue&);

}  // namespace fp8_sdpa::sm80
