// The decode family as the variant table sees it.
#pragma once

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::decode {

/// head_dim 64, 128 or 256, at most 64 query rows of a KV head, one FP8 format for Q, K and V,
/// row-major V, sm_80 and newer. Serves Ragged and Pages.
Status supports(const Problem& problem, const Device& device);

/// Predicted on an sm_90: variant_impl.hpp.
double predicted_us(const Problem& problem, int sm_count, const PlanOptions& options);

/// Cuts the keys into splits, once per plan.
Status prepare(const Problem& problem, const Device& device, const PlanOptions& options,
               detail::PlanState& state);

/// Launches what prepare() left in `state`. Instantiated per head_dim and backend.
template <int kDim, Backend kBackend>
Status launch_dim(const detail::PlanState& state, void* workspace, const gpu::Queue& queue);

template <Backend kBackend>
Status launch(const detail::PlanState& state, void* workspace, const gpu::Queue& queue) {
  switch (state.kernel) {
    case 64: return launch_dim<64, kBackend>(state, workspace, queue);
    case 128: return launch_dim<128, kBackend>(state, workspace, queue);
    default: return launch_dim<256, kBackend>(state, workspace, queue);
  }
}

}  // namespace fp8_sdpa::decode
