// The sm90 family as the variant table sees it.
#pragma once

#include "dispatch/plan_state.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::sm90 {

/// Whether blocks may share a tile of query rows.
inline bool may_share_rows(const PlanOptions& options) {
  return !options.batch_invariant && !options.no_workspace;
}

/// head_dim 64, 128 or 256 as the variant serves; masks none and causal; heads_kv dividing heads_q;
/// E4M3; row-major or transposed V; sm_90.
template <class Tag>
Status supports(const Problem& problem, const Device& device);

/// Predicted from the variant's shape: variant_impl.hpp.
template <class Tag>
double predicted_us(const Problem& problem, int sm_count, const PlanOptions& options);

/// Encodes the tensor maps and shares out the work, once per plan. Instantiated per backend.
template <class Tag, Backend kBackend>
Status prepare(const Problem& problem, const Device& device, const PlanOptions& options,
               detail::PlanState& state);

/// Launches what prepare() left in `state`.
template <class Tag, Backend kBackend>
Status launch(const detail::PlanState& state, void* workspace, const gpu::Queue& queue);

}  // namespace fp8_sdpa::sm90
