// The sm80 family as the variant table sees it.
#pragma once

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::sm80 {

/// head_dim 64, no mask, heads_q == heads_kv, one FP8 format for Q, K and V, row-major V, sm_80 and
/// newer.
Status supports(const Problem& problem, const Device& device);

/// Predicted on an sm_90: variant_impl.hpp.
double predicted_us(const Problem& problem, int sm_count, const PlanOptions& options);

/// Launches sm80_mma on one backend. Instantiated once per backend, in instances.cuh.
template <Backend kBackend>
Status launch(const Problem& problem, const gpu::Queue& queue);

}  // namespace fp8_sdpa::sm80
