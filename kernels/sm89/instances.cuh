// The sm89 kernels, for one backend. The build writes a file for nvcc and one for the host compiler
// that include this text.
#pragma once

#include "attention/few_keys.hpp"
#include "sm89/kernel.cuh"
#include "sm89/sm89.hpp"

namespace fp8_sdpa::sm89 {

namespace {

template <int kTerms>
Status launch_terms(const Problem& problem, const gpu::Queue& queue) {
  const dim3 grid(attention::forward_blocks(problem, groups::kTileM));
  const auto params = attention::forward_params(problem, groups::kTileM);
  return problem.q.dtype == Dtype::kE4M3
             ? gpu::launch<Kernel<tag::sm89_mma, Dtype::kE4M3, kTerms>>(grid, params, queue)
             : gpu::launch<Kernel<tag::sm89_mma, Dtype::kE5M2, kTerms>>(grid, params, queue);
}

}  // namespace

template <Backend kBackend>
Status launch(const Problem& problem, const gpu::Queue& queue) {
  return problem.seq_kv <= attention::kMaxKeysOfTwoTerms ? launch_terms<2>(problem, queue)
                                                         : launch_terms<1>(problem, queue);
}

template Status launch<gpu::kBackend>(const Problem&, const gpu::Queue&);

}  // namespace fp8_sdpa::sm89
