// From a problem to a launch of the sm90 kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "attention/online_softmax.hpp"
#include "attention/plan_tag.hpp"
#include "sm90/kernel.cuh"
#include "sm90/load/pre_transpose.cuh"
#include "sm90/sm90.hpp"
#include "sm90/work/order_sequences.cuh"
#include "sm90/work/packing.hpp"

namespace fp8_sdpa::sm90 {

/// A plan: the kernel's arguments and its grid.
struct Prepared {
  Params params;
  int blocks;
  std::size_t values_offset;  ///< with V^T in the workspace: of V^T in the workspace
  int kv_heads;               ///< of all batches
  std::size_t counts_offset;  ///< with Transpose::kOnceByBlocks: of UnitCounts in the workspace
  int kv_tiles;               ///< of a KV head
};

/// Of what lies in the workspace.
constexpr std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

inline namespace GPU_BACKEND {

/// A map of (batch, heads, rows, columns) bytes whose box is one panel of a tile. `row_stride`, in
/// elements, is that of the rows; columns, of `element` bytes each, are contiguous. With
/// heads_inside it is of (batch, rows, heads, columns), and a box has box_heads.
struct MapRequest {
  const Tensor* tensor;
  std::int64_t rows, columns, row_stride;
  int heads, batch;
  int box_rows, box_columns;
  bool heads_inside = false;
  int box_heads = 1;
  int element = 1;
};

inline Status encode(const MapRequest& request, gpu::TensorMap& map, MapSteps& steps) {
  // A stride of a dimension that is not walked must still be one that TMA takes.
  const auto stride = [&](std::int64_t value, std::int64_t entries) {
    constexpr std::int64_t kAny = 16;
    return static_cast<std::uint64_t>(entries > 1 ? value * request.element : kAny);
  };
  const Tensor& t = *request.tensor;
  if (!detail::has_memory(t.data)) return {};
  const std::int64_t heads = t.stride_head == 0 ? 1 : request.heads;
  const std::int64_t batch = t.stride_batch == 0 ? 1 : request.batch;
  steps = {heads > 1 ? 1 : 0, batch > 1 ? 1 : 0};
  gpu::TensorShape shape;
  shape.base = t.data;
  shape.rank = 4;
  shape.sizes = {static_cast<std::uint64_t>(request.columns * request.element),
                 static_cast<std::uint64_t>(request.rows), static_cast<std::uint64_t>(heads),
                 static_cast<std::uint64_t>(batch)};
  shape.strides = {0, stride(request.row_stride, request.rows), stride(t.stride_head, heads),
                   stride(t.stride_batch, batch)};
  shape.box = {static_cast<std::uint32_t>(request.box_columns),
               static_cast<std::uint32_t>(request.box_rows), 1, 1};
  shape.swizzle = swizzle_for(request.box_columns);
  if (request.heads_inside) {
    shape.box[2] = static_cast<std::uint32_t>(request.box_heads);
    std::swap(shape.sizes[1], shape.sizes[2]);
    std::swap(shape.strides[1], shape.strides[2]);
    std::swap(shape.box[1], shape.box[2]);
  }
  return gpu::encode_tensor_map(shape, map);
}

/// Passes of so many (batch, head) pairs each, heads that share tiles being one; the last may have
/// fewer.
inline void set_passes(const Problem& p, const Packing& packing, std::int64_t heads,
                       Params& params) {
  const std::int64_t pairs = std::int64_t{p.batch} * packing.heads;
  params.passes = static_cast<int>((pairs + heads - 1) / heads);
  params.pass_heads = attention::divisor(static_cast<int>(heads));
  params.last_pass_heads =
      attention::divisor(static_cast<int>(pairs - (params.passes - 1) * heads));
  params.pass_work_tiles = attention::divisor(params.tiles_m.value * params.pass_heads.value);
}

/// Whether V, to be transposed by the kernel, comes in rows of two keys: at head_dim 64, where TMA
/// takes as long for a row of 64 bytes as for one of 128, and a launch's first tiles wait in its
/// queue.
template <class T>
bool keys_pair_up(const Problem& p) {
  return T::kHeadDim == 64 && !T::kCopiesValues && !T::kRagged && p.v.stride_dim == 1 &&
         p.v.stride_seq == p.head_dim && p.seq_kv % 2 == 0;
}
/// The same rows, which are contiguous, two by two.
inline MapRequest in_pairs(MapRequest request) {
  request.rows /= 2;
  request.columns *= 2;
  request.row_stride *= 2;
  request.box_rows /= 2;
  request.box_columns *= 2;
  return request;
}

template <class T>
Status prepare_params(const Problem& p, Params& params) {
  using Shared = sm90::Shared<T>;
  using Keys = typename Shared::Keys;
  using Values = typename Shared::Values;
  const bool transposed = p.v.stride_dim != 1;
  const int box_dims = T::kVInWorkspace ? T::kUnitDims : T::kHeadDim;
  const attention::RowsOf q_rows = attention::rows_of_q(p);
  const attention::RowsOf kv_rows = attention::rows_of_kv(p);
  const int box_keys = T::kRagged ? keys_of_box(p, T::kTileN) : T::kTileN;
  const Packing packing = packing_of(T::kConfig, p);
  // Of a tile where a strip has all heads that share it, else of a strip.
  const int box_queries = (packing.strips == 1 ? T::kTileM : kStripRows) >> packing.log2;
  const MapRequest q{&p.q,      q_rows.seq,       p.head_dim,  p.q.stride_seq,
                     p.heads_q, q_rows.batch,     box_queries, Shared::Queries::kPanelBytes,
                     T::kPacks, 1 << packing.log2};
  const MapRequest k{&p.k,       kv_rows.seq,   p.head_dim, p.k.stride_seq,
                     p.heads_kv, kv_rows.batch, box_keys,   Keys::kPanelBytes};
  MapRequest v = transposed
                     ? MapRequest{&p.v,       p.head_dim,    kv_rows.seq, p.v.stride_dim,
                                  p.heads_kv, kv_rows.batch, box_dims,    Values::kPanelBytes}
                     : MapRequest{&p.v,       kv_rows.seq,   p.head_dim, p.v.stride_seq,
                                  p.heads_kv, kv_rows.batch, box_keys,   Keys::kPanelBytes};
  if constexpr (T::kInt8) {
    v.element = size_of(p.v.dtype);
    v.box_columns = Values::kPanelBytes;
  }
  params.v_pairs = keys_pair_up<T>(p) ? 1 : 0;
  if (Status s = encode(q, params.q, params.q_steps); !s.ok()) return s;
  if (Status s = encode(k, params.k, params.k_steps); !s.ok()) return s;
  const Status v_encoded = encode(params.v_pairs != 0 ? in_pairs(v) : v, params.v, params.v_steps);
  if (!v_encoded.ok()) return v_encoded;
  params.packed = {packing.group, packing.log2, attention::divisor(packing.strips),
                   attention::divisor(packing.heads)};
  params.o = p.o.data;
  params.lse = p.lse;
  params.descale_q = p.descales.q;
  params.descale_k = p.descales.k;
  params.descale_v = p.descales.v;
  if constexpr (T::kBlockScales) {
    const auto descales = [&](std::int64_t rows, int rows_of_block) {
      return static_cast<int>(descales_of_head(p.descales.granularity, rows, rows_of_block));
    };
    params.q_descales = descales(p.seq_q, kQueriesOfBlock);
    params.kv_descales = descales(p.seq_kv, kKeysOfBlock);
  }
  params.o_strides = attention::strides_of_output(p.o, q_rows.batch, p.heads_q, q_rows.seq);
  params.heads_q = attention::divisor(p.heads_q);
  params.group = attention::divisor(p.heads_q / p.heads_kv);
  params.heads_kv = p.heads_kv;
  params.seq_q = static_cast<int>(p.seq_q);
  params.seq_kv = static_cast<int>(p.seq_kv);
  params.softmax_scale_log2 = p.softmax_scale * attention::kLog2E;
  params.causal = p.mask == Mask::kCausal;
  params.v_transposed = transposed;
  params.output = p.o.dtype;
  params.o_scale = p.o_scale;
  return {};
}

/// Work tiles, of sequences that are all as long.
template <class T>
void plan_work_tiles(const Problem& p, Params& params) {
  const Packing packing = packing_of(T::kConfig, p);
  const int tiles_m = static_cast<int>(packing.row_tiles(p.seq_q));
  params.tiles_m = attention::divisor(tiles_m);
  params.work_tiles = tiles_m * p.batch * packing.heads;
}

/// Work tiles that the device counts: work/ragged.cuh.
template <class T>
void plan_ragged(const Problem& p, int blocks, Prepared& prepared, std::size_t& workspace_bytes) {
  const Packing packing = packing_of(T::kConfig, p);
  RaggedParams& ragged = prepared.params.ragged;
  ragged.sequences = attention::sequences_of(p);
  ragged.block_table = p.pages.block_table;
  ragged.pages = p.pages.pages;
  ragged.max_pages = p.pages.max_pages;
  ragged.page_size = attention::divisor(std::max(p.pages.page_size, 1));
  ragged.box_keys = keys_of_box(p, T::kTileN);
  ragged.batch = p.batch;
  ragged.fault = p.fault;
  workspace_bytes = (static_cast<std::size_t>(p.batch) + 1) * sizeof(RaggedSequence);
  prepared.blocks = static_cast<int>(std::min<std::int64_t>(blocks, most_work_tiles(packing, p)));
}

/// Shares the work tiles out to `blocks` blocks, the costs as seen on an H200. On the host executor
/// tile ranges cost nothing, so that small problems too have work tiles that blocks share.
template <class T>
void plan_schedule(const Problem& p, int blocks, bool may_split, Prepared& prepared,
                   std::size_t& workspace_bytes) {
  Params& params = prepared.params;
  const auto size = [&](int work_tile) {
    const int tile = place_of_work_tile(params, work_tile).tile;
    const int tiles = tiles_seen<T>(params, tile);
    if (gpu::kBackend == Backend::kHost) return WorkTileSize{tiles};
    return WorkTileSize{tiles,
                        part_of_tile(T::kConfig, rows_of_head<T>(params) - tile * T::kTileM)};
  };
  const RangeCosts costs =
      gpu::kBackend == Backend::kDevice ? range_costs(T::kConfig, T::kHeadDim) : RangeCosts{};
  const Packing packing = packing_of(T::kConfig, p);
  const auto sizes = pass_sizes(p, packing.heads, gpu::kBackend);
  const Passes passes = shortest_passes(sizes, [&](std::int64_t heads) {
    set_passes(p, packing, heads, params);
    return may_split && T::kMaySplit ? make_schedule(params.work_tiles, blocks, size, costs)
                                     : make_whole_schedule(params.work_tiles, blocks, size, costs);
  });
  set_passes(p, packing, passes.heads, params);
  const Schedule& schedule = params.schedule = passes.makespan.schedule;
  prepared.blocks = schedule.tail_work_tiles > 0 ? blocks : std::min(blocks, params.work_tiles);
  workspace_bytes =
      static_cast<std::size_t>(schedule.splits()) * T::kConsumerWarps * sizeof(WarpSplitOf<T>);
}

/// Makes room for V^T behind what there is.
template <class T>
void plan_values(const Problem& p, Prepared& prepared, std::size_t& workspace_bytes) {
  const std::int64_t tiles = (p.seq_kv + T::kTileN - 1) / T::kTileN;
  prepared.values_offset = aligned(workspace_bytes);
  workspace_bytes = prepared.values_offset + static_cast<std::size_t>(tiles) * p.batch *
                                                 p.heads_kv * sizeof(typename Shared<T>::Values);
  if constexpr (T::kTransposesOnce) {
    prepared.params.plan_tag = attention::new_plan_tag();
    prepared.kv_tiles = static_cast<int>(tiles);
    const int all_tiles = prepared.kv_heads * prepared.kv_tiles;
    prepared.params.all_units = static_cast<std::uint64_t>(all_tiles * T::kUnits);
    prepared.params.units.words = prepared.kv_heads + all_tiles + 2;
    prepared.counts_offset = aligned(workspace_bytes);
    workspace_bytes = prepared.counts_offset +
                      static_cast<std::size_t>(prepared.params.units.words) * sizeof(std::uint64_t);
  }
}

/// What the kernel that transposes V is told.
template <class T>
ValueParams value_params(const Params& params) {
  ValueParams values{};
  values.v = params.v;
  values.steps = params.v_steps;
  values.tiles = attention::divisor((params.seq_kv + T::kTileN - 1) / T::kTileN);
  values.heads_kv = attention::divisor(params.heads_kv);
  values.seq_kv = params.seq_kv;
  values.transposed = params.v_transposed;
  values.values = params.values;
  return values;
}

}  // namespace GPU_BACKEND

template <class Tag, Backend kBackend>
Status prepare(const Problem& problem, const Device& device, const PlanOptions& options,
               detail::PlanState& state) {
  using T = Traits<Tag>;
  Prepared prepared = state.has_sizes ? detail::get<Prepared>(state) : Prepared{};
  prepared.kv_heads = problem.batch * problem.heads_kv;
  // On the host executor a few blocks, so that OS threads share the work and blocks take several
  // work tiles each.
  constexpr int kHostBlocks = 4;
  const int blocks = kBackend == Backend::kDevice ? device.sm_count : kHostBlocks;
  const Status made = prepare_params<T>(problem, prepared.params);
  if (!made.ok()) return made;
  if constexpr (T::kRagged) {
    plan_ragged<T>(problem, blocks, prepared, state.workspace_bytes);
  } else if (!state.has_sizes) {
    plan_work_tiles<T>(problem, prepared.params);
    plan_schedule<T>(problem, blocks, may_share_rows(options), prepared, state.workspace_bytes);
    if (T::kVInWorkspace) plan_values<T>(problem, prepared, state.workspace_bytes);
  }
  detail::put(state, prepared);
  return {};
}

template <class Tag, Backend kBackend>
Status launch(const detail::PlanState& state, void* workspace, const gpu::Queue& queue) {
  using K = Kernel<Tag>;
  const auto& prepared = detail::get<Prepared>(state);
  Params params = prepared.params;
  if (state.workspace_bytes > 0) {
    auto* const bytes = static_cast<std::byte*>(workspace);
    params.splits = bytes;
    params.ragged.order = reinterpret_cast<RaggedSequence*>(bytes);
    params.values = reinterpret_cast<std::uint8_t*>(bytes + prepared.values_offset);
    params.units.claimed = reinterpret_cast<std::uint64_t*>(bytes + prepared.counts_offset);
    params.units.transposed = params.units.claimed + prepared.kv_heads;
    params.units.all = params.units.transposed + prepared.kv_heads * prepared.kv_tiles;
    params.units.left = params.units.all + 1;
  }
  const dim3 grid(static_cast<unsigned>(prepared.blocks));
  const auto attention = [&](const gpu::Queue& on) {
    if constexpr (K::T::kConfig.transpose == Transpose::kKernelBefore) {
      using Values = PreTranspose<Tag>;
      const ValueParams values = value_params<typename K::T>(params);
      const dim3 value_grid(
          static_cast<unsigned>(values.tiles.value * prepared.kv_heads * Values::kParts));
      return gpu::launch_both<Values, K>(value_grid, values, grid, params, on);
    } else if constexpr (K::T::kRagged) {
      return gpu::launch_both<OrderSequences<Tag>, K>(dim3(1), params, grid, params, on);
    } else {
      return gpu::launch<K>(grid, params, on);
    }
  };
  if constexpr (K::T::kMaySplit) {
    using T = typename K::T;
    const auto merge_after = [&]<int kSharing>() {
      using Merge =
          MergeSplits<T::kHeadDim, T::kRowGroups, T::kKvSplits, T::kScaledMax, T::kPacks, kSharing>;
      const dim3 merge_grid(static_cast<unsigned>(Merge::blocks(params.schedule)));
      return gpu::launch_after<Merge>(attention, merge_grid, params, queue);
    };
    if (have_many_splits(params.schedule)) return merge_after.template operator()<4>();
    if (params.schedule.splits() > 0) return merge_after.template operator()<1>();
  }
  return attention(queue);
}

}  // namespace fp8_sdpa::sm90
