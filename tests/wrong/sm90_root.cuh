// What a fault of sm90 is called by: a plan and its launch, of one variant on the host executor. On
// the schedule that runs the last first, two launches: one with other inputs, and one on what that
// has left in the workspace, whose inputs an earlier kernel has yet to write; where there is a
// workspace, a third one, which must leave that and O as the second did, and some of other plans.
// Else one, which finds a workspace of anything; of sm90_ragged, some more, of the same sequences
// packed and in pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/executor_options.hpp"
#include "sm90/launch.cuh"
#include "tests/hidden_inputs.hpp"
#include "tests/moved_batch.hpp"
#include "tests/outputs.hpp"

namespace fp8_sdpa::sm90 {

inline constexpr int kPlansInAWorkspace = 4;

template <class Tag>
Status plan_and_run(const Problem& problem, const gpu::Queue& queue) {
  detail::PlanState state;
  const Status planned = prepare<Tag, Backend::kHost>(problem, host_executor(), {}, state);
  if (!planned.ok()) return planned;
  std::vector<std::byte> workspace(state.workspace_bytes + 256, std::byte{0xFF});
  return launch<Tag, Backend::kHost>(state, workspace.data(), queue);
}

/// The same sequences, whose output is there, packed and in pages: all bits must be as they are.
template <class Tag>
Status try_ragged(const Problem& problem, const gpu::Queue& queue) {
  using tests::MovedBatch;
  for (const auto keys : {MovedBatch::Keys::kPacked, MovedBatch::Keys::kPaged}) {
    // More without queries than a warp looks at at once.
    const int without_queries = keys == MovedBatch::Keys::kPacked ? 40 : 1;
    MovedBatch moved(problem, keys, 16, /*pack_queries=*/true, without_queries);
    if (const Status s = plan_and_run<Tag>(moved.problem, queue); !s.ok()) return s;
    if (const std::string where = moved.difference(); !where.empty() || moved.fault != 0) {
      return {StatusCode::kExecutorError, "elsewhere, it is another: " + where};
    }
    if (keys == MovedBatch::Keys::kPaged || problem.seq_q > 20) continue;
    const Status offsets = tests::try_hostile_offsets(
        moved, problem, [&](const Problem& hurt) { return plan_and_run<Tag>(hurt, queue); });
    if (!offsets.ok()) return offsets;
  }
  MovedBatch paged(problem, MovedBatch::Keys::kPaged, 256, /*pack_queries=*/false);
  const std::vector<std::uint16_t> output = tests::output_of(problem);
  const auto run = [&](const Problem& hurt) { return plan_and_run<Tag>(hurt, queue); };
  if (problem.seq_q <= 20) {
    if (const Status hostile = tests::try_hostile(paged, run); !hostile.ok()) return hostile;
  }
  tests::forget_output(problem);
  if (const Status s = run(paged.problem); !s.ok()) return s;
  if (tests::output_of(problem) != output || paged.fault != 0) {
    return {StatusCode::kExecutorError, "pages change the output"};
  }
  return {};
}

template <class Tag>
Status plan_and_launch(const Problem& problem, const gpu::Queue& queue) {
  detail::PlanState state;
  const Status planned = prepare<Tag, Backend::kHost>(problem, host_executor(), {}, state);
  if (!planned.ok()) return planned;
  std::vector<std::byte> workspace(state.workspace_bytes + 256, std::byte{0xFF});
  const auto run = [&](const gpu::Queue& on) {
    return launch<Tag, Backend::kHost>(state, workspace.data(), on);
  };
  const bool twice =
      queue.executor != nullptr && queue.executor->schedule == fp8_sdpa::Schedule::kLifo;
  if (!twice) {
    const Status once = run(queue);
    // Of several sequences, or heads that may share tiles: others show no more.
    if constexpr (Traits<Tag>::kRagged) {
      if (once.ok() && (problem.batch > 1 || problem.heads_q > problem.heads_kv))
        return try_ragged<Tag>(problem, queue);
    }
    return once;
  }
  tests::HiddenInputs inputs(problem);
  const Status first = run(queue);
  if (!first.ok()) return first;
  tests::forget_output(problem);
  ExecutorOptions options = *queue.executor;
  options.earlier_kernels = [&] { inputs.show(); };
  const Status second = run({nullptr, &options});
  if (!second.ok() || state.workspace_bytes == 0) return second;
  const std::vector<std::byte> left = workspace;
  const std::vector<std::uint16_t> output = tests::output_of(problem);
  const Status third = run(queue);
  if (!third.ok()) return third;
  if (workspace != left || tests::output_of(problem) != output) {
    return {StatusCode::kExecutorError,
            "launches of the same inputs leave different outputs or workspaces"};
  }
  // Of other plans, in the same workspace.
  for (int i = 0; i < kPlansInAWorkspace; ++i) {
    detail::PlanState other;
    const Status again = prepare<Tag, Backend::kHost>(problem, host_executor(), {}, other);
    if (!again.ok()) return again;
    tests::forget_output(problem);
    const Status ran = launch<Tag, Backend::kHost>(other, workspace.data(), queue);
    if (!ran.ok()) return ran;
    if (tests::output_of(problem) == output) continue;
    return {StatusCode::kExecutorError, "a launch depends on what another plan has left"};
  }
  return {};
}

}  // namespace fp8_sdpa::sm90
