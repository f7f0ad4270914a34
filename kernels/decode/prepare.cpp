// How the keys are cut, once per plan.
#include <algorithm>
#include <cstddef>

#include "attention/plan_tag.hpp"
#include "decode/decode.hpp"
#include "decode/params.hpp"
#include "dispatch/plan_state.hpp"

namespace fp8_sdpa::decode {
namespace {

Params params_of(const Problem& p, int keys_of_split) {
  Params params{};
  params.q = static_cast<const std::uint8_t*>(p.q.data);
  params.k = static_cast<const std::uint8_t*>(p.k.data);
  params.v = static_cast<const std::uint8_t*>(p.v.data);
  params.o = p.o.data;
  params.lse = p.lse;
  params.descale_q = p.descales.q;
  params.descale_k = p.descales.k;
  params.descale_v = p.descales.v;
  const bool paged = p.pages.block_table != nullptr;
  const int sequences = paged ? p.pages.pages : p.batch;
  const std::int64_t keys = paged ? p.pages.page_size : p.seq_kv;
  params.q_strides = attention::strides_of(p.q, p.batch, p.heads_q, p.seq_q);
  params.k_strides = attention::strides_of(p.k, sequences, p.heads_kv, keys);
  params.v_strides = attention::strides_of(p.v, sequences, p.heads_kv, keys);
  params.o_strides = attention::strides_of(p.o, p.batch, p.heads_q, p.seq_q);
  params.heads_kv = attention::divisor(p.heads_kv);
  params.group = attention::divisor(p.heads_q / p.heads_kv);
  params.seq_q = static_cast<int>(p.seq_q);
  params.rows = params.seq_q * params.group.value;
  params.seq_kv = static_cast<int>(p.seq_kv);
  params.seqused_kv = p.ragged.seqused_kv;
  params.block_table = p.pages.block_table;
  params.pages = p.pages.pages;
  params.max_pages = p.pages.max_pages;
  params.page_size = attention::divisor(paged ? p.pages.page_size : 1);
  params.fault = p.fault;
  params.split_keys = attention::divisor(keys_of_split);
  params.splits = attention::divisor((params.seq_kv + keys_of_split - 1) / keys_of_split);
  params.tag = attention::new_plan_tag();
  params.softmax_scale_log2 = p.softmax_scale * attention::kLog2E;
  params.causal = p.mask == Mask::kCausal;
  params.output = p.o.dtype;
  return params;
}

}  // namespace

int split_keys(const Problem& p, int multiprocessors, const PlanOptions& options) {
  constexpr std::int64_t kLeast = 256;
  constexpr std::int64_t kInvariant = 1024;
  constexpr int kBlocksAtOnce = 2;
  constexpr int kRounds = 8;
  const auto up = [](std::int64_t x, std::int64_t y) { return (x + y - 1) / y; };
  if (options.no_workspace) return static_cast<int>(up(p.seq_kv, kSplitMultiple) * kSplitMultiple);
  if (options.batch_invariant) return kInvariant;
  const std::int64_t units = std::int64_t{p.batch} * p.heads_kv;
  const std::int64_t slots = std::int64_t{multiprocessors} * kBlocksAtOnce;
  const std::int64_t splits = units * 2 <= slots ? slots / units : up(slots * kRounds, units);
  const std::int64_t keys = std::max(up(p.seq_kv, splits), kLeast);
  return static_cast<int>(up(keys, kSplitMultiple) * kSplitMultiple);
}

Status prepare(const Problem& problem, const Device& device, const PlanOptions& options,
               detail::PlanState& state) {
  // On the host executor few, so that small problems too have sequences of several splits.
  constexpr int kHostMultiprocessors = 4;
  const int multiprocessors =
      device.backend == Backend::kDevice ? device.sm_count : kHostMultiprocessors;
  Prepared prepared{};
  prepared.params = params_of(problem, split_keys(problem, multiprocessors, options));
  const int units = problem.batch * problem.heads_kv;
  const int splits = prepared.params.splits.value;
  prepared.input = problem.q.dtype;
  prepared.blocks = units * splits;
  if (splits > 1) {
    const auto parts = static_cast<std::size_t>(prepared.blocks);
    const auto rows = static_cast<std::size_t>(row_groups(prepared.params.rows) * kWarpRows);
    prepared.rows_offset =
        parts * rows * static_cast<std::size_t>(problem.head_dim) * sizeof(float);
    prepared.arrived_offset = prepared.rows_offset + parts * rows * sizeof(attention::RowState);
    state.workspace_bytes =
        prepared.arrived_offset + static_cast<std::size_t>(units) * sizeof(std::uint64_t);
  }
  state.kernel = problem.head_dim;
  detail::put(state, prepared);
  return {};
}

}  // namespace fp8_sdpa::decode
