// decode_split_kv: few query rows on many keys, read from a cache of whole tensors or of pages, on
// half tensor cores (sm_80 and newer). Flash-decoding (Dao et al., 2023): keys are split over
// blocks, and in a block over warps.
//
// The query heads of a KV head and the new queries of a sequence are the rows of one tile (packed
// GQA), so that K and V are read once; at head_dim 64 two KV heads of few rows are one tile. One
// block computes all of them, at most 64, over one split of the keys:
//
//   Q <- operands of the warp's 16 rows                      registers, once
//   O <- 0, m <- -inf, l <- 0                                registers
//   for each step, kWarpKeys keys of the warp's key group:
//     wait for K, V of the step; start the copies of a later step
//     S <- Q K^T                                             (16, kWarpKeys) fp32 accumulators
//     S <- -inf past the last key that a row sees
//     m' <- max(m, rowmax S);  P <- exp2((S - m') * scale);  a <- exp2((m - m') * scale)
//     l <- a l + rowsum P;  m <- m';  O <- a O + P V         (16, head_dim) fp32 accumulators
//   merge the key groups; store O and LSE, where the sequence is one split, else
//   write the split's O, m and l; the block that arrives last merges all splits of the sequence
//
// Data: global FP8 -> cp.async -> FP8 in shared memory -> ldmatrix -> halves -> S, P, O in
// registers -> shared memory (key groups, once) -> global.
//
// barrier       | who                   | all arrive when                  | and may then
// --------------|-----------------------|----------------------------------|---------------------
// 1 + key_group | its warps, each step  | own copies of the step landed;   | read the step's stage;
//               |                       | own work on the last one is done | overwrite the last's
// stages_free   | block, once           | own steps are done               | write parts
// parts_ready   | block, once           | own O, m, l are written          | read all parts
// split_written | block, once           | the split is in the workspace    | count the block in
// last_known    | block, once           | the count is known               | merge, or end
//
// Of a ragged or paged batch there may be more rows than a block computes: tiles of them, each in
// blocks of its own. Lengths and tables are read when the kernel runs. A length that no tensor has
// and a page outside the pool are never read through: the sequence's rows of O and LSE become NaN,
// and Params::fault 1.
#pragma once

#include "attention/half_operands.hpp"
#include "decode/kv_ring.cuh"
#include "decode/merge.cuh"

namespace fp8_sdpa::decode {

/// -inf in the columns of row h from `left` on.
template <int kTiles>
GPU_FN void mask_row(float (&s)[kTiles][4], int h, int left) {
  const int first = gpu::lane_idx() % 4 * 2;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    if (i / 2 * 8 + first + i % 2 >= left) s[i / 2][2 * h + i % 2] = -INFINITY;
  }
}

/// By a warp.
GPU_FN void tell_fault(const Params& p) {
  if (p.fault != nullptr && gpu::lane_idx() == 0) gpu::atomic_max_relaxed(p.fault, 1);
}

template <class Tag, int kDim, int kGroups, int kHeads, Dtype kInput>
struct Kernel {
  using S = TileShape<kDim, kGroups, kHeads>;
  using Params = decode::Params;
  using Operands = attention::HalfOperands<kInput, S::kTileDim, S::kWarpKeys>;
  static constexpr int kThreads = S::kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = S::kMinBlocks;
  static constexpr bool kUsesPdl = true;

  struct Shared {
    union {
      KvStages<S> stages;
      GroupParts<S> parts;
    };
    bool last;  ///< of the splits to arrive
  };

  /// The scales of a lane's rows, and their codes of Q: rows that do not exist are zero.
  struct Queries {
    float factor[2];
    int query[2];
    attention::QueryCodes<S::kTileDim> q;
  };
  GPU_FN static Queries load_queries(const Params& p, const Work& work, int row_group) {
    Queries queries{};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Row row = row_of(p, work, row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h);
      const bool exists = row.exists;
      if (!exists) row = row_of(p, work, 0);
      const std::int64_t kv_head = static_cast<std::int64_t>(work.batch) * p.heads_kv + row.kv_head;
      const std::int64_t head =
          static_cast<std::int64_t>(work.batch) * p.heads_kv * p.group.value + row.head;
      const attention::ScoreScale scale(p.descale_q[head] * p.descale_k[kv_head] *
                                        p.softmax_scale_log2);
      queries.factor[h] = scale.factor;
      queries.query[h] = row.query;
      const std::uint8_t* const codes =
          attention::row_pointer(p.q, p.q_strides, work.batch, row.head,
                                 work.sequence.first_query + row.query) +
          gpu::lane_idx() % 4 * 4;
#pragma unroll
      for (int c = 0; c < S::kHeadDim / attention::kChunk; ++c) {
        const auto four = *reinterpret_cast<const std::uint32_t*>(codes + c * attention::kChunk);
        queries.q.codes[first_sixteen<S>(h) + c][h] = exists ? four ^ scale.flip_signs : 0U;
      }
    }
    return queries;
  }

  /// S of a step. Of two heads, rows 0 to 7 take the sums of one head's dims, rows 8 to 15 those of
  /// the other's: apart, for a NaN in one head's K is none in the other's scores.
  GPU_FN static void scores(const typename Operands::Queries& q, const CodeTile<S>& k,
                            float (&s)[Operands::kTilesS][4]) {
    constexpr int kSixteens = S::kHeadDim / 16;
    Operands::template scores<0, kSixteens>(q, k, s);
    if constexpr (kHeads > 1) {
      float of_next[Operands::kTilesS][4] = {};
      Operands::template scores<kSixteens, 2 * kSixteens>(q, k, of_next);
#pragma unroll
      for (int j = 0; j < Operands::kTilesS; ++j) {
        s[j][2] = of_next[j][2];
        s[j][3] = of_next[j][3];
      }
    }
  }

  /// This warp's part of the split.
  GPU_FN static RowsOfLane<S> attend(const Params& p, const Work& work, KvRing<S>& ring,
                                     int row_group) {
    const Queries queries = load_queries(p, work, row_group);
    const typename Operands::Queries q(queries.q);
    const bool has_rows = row_group * kWarpRows < work.rows;
    const bool has_upper = has_upper_rows<S>(work, row_group);
    const int first_limit = key_limit(p, work, row_of(p, work, 0).query);
    attention::LaneRows rows;
    RowsOfLane<S> part{};
#pragma unroll 1
    for (int step = 0; step < ring.steps(); ++step) {
      const KvStage<S>& kv = ring.wait(step);
      if (!has_rows || !ring.has_keys(step)) continue;
      float s[Operands::kTilesS][4] = {};
      scores(q, kv.k, s);
      const int first = ring.first_key(step);
      // Splits but the last are whole steps.
      const bool seen_whole = first + S::kWarpKeys <= first_limit;
      float rescale[2] = {1.0F, 1.0F};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (h == 1 && !has_upper) break;
        if (!seen_whole) mask_row(s, h, key_limit(p, work, queries.query[h]) - first);
        rescale[h] =
            attention::softmax_row_step<Operands::kLog2Scale>(s, h, queries.factor[h], rows.row[h]);
      }
      Operands::accumulate(s, kv.v, rescale, part.o);
    }
    const bool bad_page = gpu::any_lane(ring.bad_page());
    if (bad_page) tell_fault(p);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      part.state[h] = {rows.row[h].max * queries.factor[h],
                       attention::sum_over_quad(rows.row[h].sum)};
      if (bad_page || work.sequence.bad_keys) part.state[h] = {NAN, NAN};
    }
    return part;
  }

  GPU_FN static void run(const Params& p, Shared& sm) {
    Work work = place_of_block(p);
    gpu::pdl_wait();
    gpu::pdl_launch_dependents();
    read_lengths(p, work);
    if (work.sequence.bad_queries || work.sequence.bad_keys) tell_fault(p);
    if (work.rows <= 0 || work.split >= work.splits) return;
    const int row_group = gpu::warp_idx() % S::kRowGroups;
    const int key_group = gpu::warp_idx() / S::kRowGroups;
    KvRing<S> ring(p, work, sm.stages, row_group, key_group);
    RowsOfLane<S> rows = attend(p, work, ring, row_group);
    gpu::sync_block();  // stages_free
    if (key_group > 0) write_part(sm.parts, work, key_group - 1, row_group, rows);
    gpu::sync_block();  // parts_ready
    if (key_group == 0) {
      add_parts(sm.parts, work, row_group, rows);
      if (work.splits == 1) {
        store_rows(p, work, row_group, rows);
      } else {
        write_split(p, work, row_group, rows);
      }
    }
    if (work.splits == 1) return;
    gpu::sync_block();  // split_written
    if (gpu::thread_idx() == 0) sm.last = arrives_last(p, work);
    gpu::sync_block();  // last_known
    if (sm.last) merge_splits<S>(p, work);
  }
};

}  // namespace fp8_sdpa::decode
