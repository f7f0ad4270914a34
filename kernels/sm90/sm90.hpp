// The sm90 family as the variant table sees it.
#pragma once

#include <string_view>

#include "dispatch/plan_state.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"
#include "sm90/tile_shapes.hpp"

namespace fp8_sdpa::sm90 {

/// Whether blocks may share a tile of query rows.
inline bool may_share_rows(const PlanOptions& options) {
  return !options.batch_invariant && !options.no_workspace;
}

/// Whether the kernel serves a problem: its head_dim and its LSE; masks none and causal; heads_kv
/// dividing heads_q; E4M3; row-major or transposed V; sm_90; its number of keys; its pages.
Status supports(const TileShape& shape, const Problem& problem, const Device& device);

struct Cost;
/// What a problem is for a kernel's Cost.
struct Load {
  double tiles;  ///< KV tiles of the block that ends last, and what it does beside them
  double v;      ///< elements of V, where it is transposed before it is multiplied; else 0
};
Load load_of(const TileShape& shape, const Problem& problem, int sm_count,
             const PlanOptions& options);

/// Predicted microseconds, of given costs or of those in costs.hpp: variant_impl.hpp.
double predicted_us(const TileShape& shape, const Cost& cost, const Problem& problem, int sm_count,
                    const PlanOptions& options);
double predicted_us(const TileShape& shape, const Problem& problem, int sm_count,
                    const PlanOptions& options);

/// Encodes the tensor maps and shares out the work, once per plan. Instantiated per kernel and
/// backend.
template <class Tag, Backend kBackend>
Status prepare(const Problem& problem, const Device& device, const PlanOptions& options,
               detail::PlanState& state);

/// Launches what prepare() left in `state`.
template <class Tag, Backend kBackend>
Status launch(const detail::PlanState& state, void* workspace, const gpu::Queue& queue);

/// The config of a variant's first kernel; what is asked of it below is the same in all.
constexpr const Config& config_of(std::string_view variant) {
  int i = 0;
  while (kTileShapes[i].variant != variant) ++i;
  return kTileShapes[i].config;
}
/// Whether every kernel of a variant keeps V^T in the workspace, or the order of sequences.
constexpr bool needs_workspace(std::string_view variant) {
  return config_of(variant).v_in_workspace() || config_of(variant).ragged;
}
constexpr bool serves_caches(std::string_view variant) { return config_of(variant).ragged; }

}  // namespace fp8_sdpa::sm90
