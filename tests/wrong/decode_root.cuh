// What a fault of decode is called by, on the host executor: the problem as it is, and the same in
// pages, ragged, with another length and entry where nothing may be read. Which of them is left in
// O goes by the schedule; bits of both are equal where splits are of one size. Of E4M3 at head_dim
// 64 alone: the others take long to compile, and are a matter of the gates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "decode/launch.cuh"
#include "gpu/executor_options.hpp"
#include "tests/hidden_inputs.hpp"
#include "tests/moved_batch.hpp"
#include "tests/outputs.hpp"

namespace fp8_sdpa::decode {

using tests::MovedBatch;

inline Status plan_and_run(const Problem& problem, const PlanOptions& options,
                           const gpu::Queue& queue, int launches = 1) {
  detail::PlanState state;
  const Status planned = prepare(problem, host_executor(), options, state);
  if (!planned.ok()) return planned;
  std::vector<std::byte> workspace(state.workspace_bytes + 256, std::byte{0xFF});
  for (int i = 0; i < launches; ++i) {
    tests::forget_output(problem);
    const Status ran =
        launch_format<64, Dtype::kE4M3, Backend::kHost>(state, workspace.data(), queue);
    if (!ran.ok()) return ran;
  }
  return {};
}

/// The same sequences, whose output is there, packed.
inline Status try_packed(const Problem& problem, const PlanOptions& one_size,
                         const gpu::Queue& queue) {
  MovedBatch packed(problem, MovedBatch::Keys::kPacked, 0, /*pack_queries=*/true);
  const auto run = [&](const Problem& hurt) { return plan_and_run(hurt, one_size, queue); };
  if (const Status s = run(packed.problem); !s.ok()) return s;
  if (const std::string where = packed.difference(); !where.empty() || packed.fault != 0) {
    return {StatusCode::kExecutorError, "packed, it is another: " + where};
  }
  return tests::try_hostile_offsets(packed, problem, run);
}

inline Status plan_and_launch(const Problem& problem, const gpu::Queue& queue) {
  const bool backwards =
      queue.executor != nullptr && queue.executor->schedule == fp8_sdpa::Schedule::kLifo;
  if (backwards) {
    // Inputs that an earlier kernel has yet to write, and what a launch leaves in the workspace.
    tests::HiddenInputs inputs(problem);
    ExecutorOptions options = *queue.executor;
    options.earlier_kernels = [&] { inputs.show(); };
    const Status first = plan_and_run(problem, {}, {nullptr, &options});
    if (!first.ok()) return first;
    return plan_and_run(problem, {}, queue, 2);
  }
  const PlanOptions one_size{.batch_invariant = true};
  if (const Status dense = plan_and_run(problem, one_size, queue); !dense.ok()) return dense;
  const std::vector<std::uint16_t> output = tests::output_of(problem);
  MovedBatch paged(problem, MovedBatch::Keys::kPaged, 24, /*pack_queries=*/false);
  // Of several sequences: one alone shows no more.
  if (problem.batch > 1) {
    const Status hostile = tests::try_hostile(
        paged, [&](const Problem& hurt) { return plan_and_run(hurt, {}, queue); });
    if (!hostile.ok()) return hostile;
    if (const Status s = try_packed(problem, one_size, queue); !s.ok()) return s;
  }
  tests::forget_output(problem);
  const Status ran = plan_and_run(paged.problem, one_size, queue);
  if (!ran.ok()) return ran;
  if (tests::output_of(problem) != output || paged.fault != 0) {
    return {StatusCode::kExecutorError, "pages change the output"};
  }
  return plan_and_run(paged.problem, {.no_workspace = true}, queue);
}

}  // namespace fp8_sdpa::decode
