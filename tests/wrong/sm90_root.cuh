// What a fault of sm90 is called by: a plan and its launch, of one variant on the host executor.
#pragma once

#include <cstddef>
#include <vector>

#include "sm90/launch.cuh"

namespace fp8_sdpa::sm90 {

template <class Tag>
Status plan_and_launch(const Problem& problem, const gpu::Queue& queue) {
  detail::PlanState state;
  const Status planned = prepare<Tag, Backend::kHost>(problem, host_executor(), {}, state);
  if (!planned.ok()) return planned;
  std::vector<std::byte> workspace(state.workspace_bytes + 256, std::byte{0xFF});
  return launch<Tag, Backend::kHost>(state, workspace.data(), queue);
}

}  // namespace fp8_sdpa::sm90
