// The sm89 family as the variant table sees it.
#pragma once

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::sm89 {

/// head_dim 64, no mask, heads_q == heads_kv, one FP8 format for Q, K and V, row-major V, sm_89 and
/// newer.
Status supports(const Problem& problem, const Device& device);

/// Launches sm89_mma on one backend. Instantiated once per backend, in instances.cuh.
template <Backend kBackend>
Status launch(const Problem& problem, const gpu::Queue& queue);

}  // namespace fp8_sdpa::sm89
