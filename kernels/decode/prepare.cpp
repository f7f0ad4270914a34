// The kernel's arguments, grid and workspace, once per plan.
#include <algorithm>
#include <climits>
#include <cstddef>
#include <limits>
#include <string>

#include "attention/plan_tag.hpp"
#include "attention/query_codes.hpp"
#include "decode/cost_model.hpp"
#include "decode/decode.hpp"
#include "decode/params.hpp"
#include "dispatch/plan_state.hpp"

namespace fp8_sdpa::decode {
namespace {

RowChunks row_chunks(const attention::Strides& strides) {
  return {static_cast<std::uint32_t>(strides.batch / attention::kChunk),
          static_cast<std::uint32_t>(strides.head / attention::kChunk),
          static_cast<std::uint32_t>(strides.seq / attention::kChunk)};
}

Params params_of(const Problem& p, const PlanOptions& options, int keys_of_split) {
  Params params{};
  params.q = static_cast<const std::uint8_t*>(p.q.data);
  params.k = static_cast<const std::uint8_t*>(p.k.data);
  params.v = static_cast<const std::uint8_t*>(p.v.data);
  params.o = p.o.data;
  params.lse = p.lse;
  params.descale_q = p.descales.q;
  params.descale_k = p.descales.k;
  params.descale_v = p.descales.v;
  const attention::RowsOf q = attention::rows_of_q(p);
  const attention::RowsOf kv = attention::rows_of_kv(p);
  params.q_strides = attention::strides_of(p.q, q.batch, p.heads_q, q.seq);
  const attention::Strides k = attention::strides_of(p.k, kv.batch, p.heads_kv, kv.seq);
  const attention::Strides v = attention::strides_of(p.v, kv.batch, p.heads_kv, kv.seq);
  params.k_rows = row_chunks(k);
  params.v_rows = row_chunks(v);
  params.o_strides = attention::strides_of_output(p.o, q.batch, p.heads_q, q.seq);
  const bool pairs = has_pairs(p, options);
  params.heads_kv = p.heads_kv;
  params.tile_heads = pairs ? kPair : 1;
  params.head_tiles = attention::divisor(p.heads_kv / params.tile_heads);
  params.group = attention::divisor(p.heads_q / p.heads_kv);
  params.tile_rows = pairs ? kPairRows : row_groups_for(p, options) * kWarpRows;
  params.row_tiles = attention::divisor(static_cast<int>(row_tiles(p)));
  params.sequences = attention::sequences_of(p);
  params.block_table = p.pages.block_table;
  params.pages = p.pages.block_table != nullptr ? p.pages.pages : INT_MAX;
  params.max_pages = p.pages.max_pages;
  params.page_size = attention::divisor(std::max(p.pages.page_size, 1));
  params.fault = p.fault;
  params.split_keys = attention::divisor(keys_of_split);
  params.splits = attention::divisor((params.sequences.seq_kv + keys_of_split - 1) / keys_of_split);
  params.tag = attention::new_plan_tag();
  params.softmax_scale_log2 = p.softmax_scale * attention::kLog2E;
  params.causal = p.mask == Mask::kCausal;
  params.output = p.o.dtype;
  params.o_scale = p.o_scale;
  return params;
}

int keys_of_split(const Problem& problem, const Device& device, const PlanOptions& options) {
  // On the host executor, whose speed nobody asks about, small problems have several splits too.
  constexpr int kHostSplit = 256;
  const bool by_time = !options.no_workspace && !options.batch_invariant;
  if (by_time && device.backend == Backend::kHost) return kHostSplit;
  return split_keys(problem, device.sm_count, options);
}

}  // namespace

double predicted_us(const Problem& p, int sm_count, const PlanOptions& options) {
  const bool for_others = rows_of_head(p) > kMaxRows && !attention::is_ragged_or_paged(p);
  if (for_others) return std::numeric_limits<double>::infinity();
  return us_in_splits(p, sm_count, split_keys(p, sm_count, options));
}

Status prepare(const Problem& problem, const Device& device, const PlanOptions& options,
               detail::PlanState& state) {
  Prepared prepared{};
  prepared.params = params_of(problem, options, keys_of_split(problem, device, options));
  const Params& params = prepared.params;
  const int units = problem.batch * params.head_tiles.value * params.row_tiles.value;
  const int splits = params.splits.value;
  constexpr int kMaxBlocks = INT_MAX;
  if (splits > kMaxBlocks / units) {
    return unsupported("decode_split_kv serves at most " + std::to_string(kMaxBlocks) +
                       " splits of tiles of rows, not " + std::to_string(units) + " * " +
                       std::to_string(splits) + "; without batch_invariant there are fewer");
  }
  prepared.input = problem.q.dtype;
  prepared.blocks = units * splits;
  if (splits > 1) {
    const auto parts = static_cast<std::size_t>(prepared.blocks);
    const auto rows = static_cast<std::size_t>(params.tile_heads * params.tile_rows);
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
