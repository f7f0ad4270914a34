// What a fault of decode is called by, on the host executor: the problem as it is, and the same in
// pages, ragged, with another length and entry where nothing may be read. Which of them is left in
// O goes by the schedule; bits of both are equal where splits are of one size. Of E4M3 at head_dim
// 64 alone: the others take long to compile, and are a matter of the gates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "decode/launch.cuh"
#include "gpu/executor_options.hpp"
#include "tests/hidden_inputs.hpp"
#include "tests/outputs.hpp"

namespace fp8_sdpa::decode {

/// K and V of a problem in pages, in an order of their own, among pages that nobody has.
class Paged {
 public:
  static constexpr int kPageSize = 24;
  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

  explicit Paged(const Problem& from) : problem(from) {
    const auto keys = static_cast<int>(from.seq_kv);
    const int used = (keys + kPageSize - 1) / kPageSize;
    const int columns = used + 2;
    problem.seq_kv = keys + kPageSize;
    problem.pages.max_pages = columns;
    problem.pages.page_size = kPageSize;
    problem.pages.pages = from.batch * used + 2;
    lengths.assign(static_cast<std::size_t>(from.batch), keys);
    table.assign(static_cast<std::size_t>(from.batch * columns), kNone);
    for (int i = 0; i < from.batch * used; ++i) {
      table[static_cast<std::size_t>(i / used * columns + i % used)] = problem.pages.pages - 2 - i;
    }
    problem.k = pool(from, from.k, k_);
    problem.v = pool(from, from.v, v_);
    problem.pages.block_table = table.data();
    problem.ragged.seqused_kv = lengths.data();
    problem.fault = &fault;
  }

  Problem problem;
  std::vector<std::int32_t> table, lengths;
  std::uint32_t fault = 0;

 private:
  Tensor pool(const Problem& from, const Tensor& tensor, std::vector<std::uint8_t>& memory) {
    const std::int64_t row = std::int64_t{from.heads_kv} * from.head_dim;
    memory.assign(static_cast<std::size_t>(problem.pages.pages * kPageSize * row) + 16, 0xFF);
    auto* const first = memory.data() + (16 - reinterpret_cast<std::uintptr_t>(memory.data()) % 16);
    for (int b = 0; b < from.batch; ++b) {
      for (int h = 0; h < from.heads_kv; ++h) {
        for (std::int64_t key = 0; key < from.seq_kv; ++key) {
          const std::int64_t page =
              table[static_cast<std::size_t>(b * problem.pages.max_pages + key / kPageSize)];
          std::memcpy(first + (page * kPageSize + key % kPageSize) * row + h * from.head_dim,
                      static_cast<const std::uint8_t*>(tensor.data) + b * tensor.stride_batch +
                          h * tensor.stride_head + key * tensor.stride_seq,
                      static_cast<std::size_t>(from.head_dim));
        }
      }
    }
    return {first, tensor.dtype, kPageSize * row, from.head_dim, row, 1};
  }

  std::vector<std::uint8_t> k_, v_;
};

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

/// Whether a half or bf16 row is NaN in each element.
inline bool is_nan(const Problem& p, const std::uint16_t* row) {
  const int infinity = p.o.dtype == Dtype::kHalf ? 0x7C00 : 0x7F80;
  for (int dim = 0; dim < p.head_dim; ++dim) {
    if ((row[dim] & 0x7FFF) <= infinity) return false;
  }
  return true;
}

/// The last sequence's length or a page of it is none: it says so, in every row, and the others do
/// not.
inline Status try_hostile(Paged& paged, const gpu::Queue& queue) {
  const Problem& p = paged.problem;
  const std::vector<std::int32_t> table = paged.table, lengths = paged.lengths;
  const std::int32_t first_page = table[table.size() - p.pages.max_pages];
  struct Wrong {
    std::int32_t page, length;
  };
  for (const Wrong& wrong : {Wrong{-1, lengths.back()},
                             {p.pages.pages, lengths.back()},
                             {first_page, -1},
                             {first_page, static_cast<std::int32_t>(p.seq_kv) + 1}}) {
    paged.table[table.size() - p.pages.max_pages] = wrong.page;
    paged.lengths.back() = wrong.length;
    // Behind the last key, too, are pages that exist.
    if (wrong.length != lengths.back())
      std::replace(paged.table.begin(), paged.table.end(), Paged::kNone, 0);
    paged.fault = 0;
    const Status ran = plan_and_run(p, {}, queue);
    if (!ran.ok()) return ran;
    std::int64_t nan_rows = 0;
    tests::visit_output(p, [&](const std::uint16_t* row) { nan_rows += is_nan(p, row) ? 1 : 0; });
    if (paged.fault != 1 || nan_rows != p.heads_q * p.seq_q) {
      return {StatusCode::kExecutorError, "a page or a length that is none is not told"};
    }
    if (p.lse != nullptr && !std::isnan(p.lse[p.batch * p.heads_q * p.seq_q - 1])) {
      return {StatusCode::kExecutorError, "the LSE of a page that is none is a number"};
    }
  }
  paged.table = table;
  paged.lengths = lengths;
  paged.fault = 0;
  return {};
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
  Paged paged(problem);
  // Only where nothing of the inputs is NaN already.
  bool any_nan = false;
  tests::visit_output(problem,
                      [&](const std::uint16_t* row) { any_nan = any_nan || is_nan(problem, row); });
  if (!any_nan) {
    if (const Status hostile = try_hostile(paged, queue); !hostile.ok()) return hostile;
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
