// Launching decode_split_kv at one head_dim.
#pragma once

#include <cstddef>

#include "decode/decode.hpp"
#include "decode/kernel.cuh"
#include "dispatch/plan_state.hpp"

namespace fp8_sdpa::decode {

template <int kDim, Dtype kInput, Backend kBackend>
Status launch_format(const detail::PlanState& state, void* workspace, const gpu::Queue& queue) {
  using Tag = tag::decode_split_kv;
  const auto& prepared = detail::get<Prepared>(state);
  Params params = prepared.params;
  if (state.workspace_bytes > 0) {
    auto* const bytes = static_cast<std::byte*>(workspace);
    params.to = {reinterpret_cast<float4*>(bytes),
                 reinterpret_cast<attention::RowState*>(bytes + prepared.rows_offset),
                 reinterpret_cast<std::uint64_t*>(bytes + prepared.arrived_offset)};
  }
  const dim3 grid(static_cast<unsigned>(prepared.blocks));
  if constexpr (kDim == kPairDim) {
    if (params.tile_heads == kPair) {
      return gpu::launch<Kernel<Tag, kDim, 1, kPair, kInput>>(grid, params, queue);
    }
  }
  return params.tile_rows == kWarpRows
             ? gpu::launch<Kernel<Tag, kDim, 1, 1, kInput>>(grid, params, queue)
             : gpu::launch<Kernel<Tag, kDim, kMaxRowGroups, 1, kInput>>(grid, params, queue);
}

template <int kDim, Backend kBackend>
Status launch_dim(const detail::PlanState& state, void* workspace, const gpu::Queue& queue) {
  return detail::get<Prepared>(state).input == Dtype::kE4M3
             ? launch_format<kDim, Dtype::kE4M3, kBackend>(state, workspace, queue)
             : launch_format<kDim, Dtype::kE5M2, kBackend>(state, workspace, queue);
}

}  // namespace fp8_sdpa::decode
