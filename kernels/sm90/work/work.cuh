// How the persistent blocks of a kernel share the work.
//
// A work tile is a tile of query rows of one (batch, head); schedule.hpp says which block takes
// which, or which tile range of one. Work tiles come in passes of as many heads as the L2 cache
// holds. Under the causal mask their lengths fall in the last pass, rise in the one before it, and
// so on: no jump between passes would even out, and what is dealt last is short.
#pragma once

#include <cstdint>

#include "attention/tagged_count.hpp"
#include "sm90/work/params.hpp"
#include "sm90/work/ragged.cuh"

namespace fp8_sdpa::sm90 {

inline namespace GPU_BACKEND {

/// Keys that query `query` sees: those below this.
GPU_SHARED_FN int key_limit(const Params& p, int query) {
  if (!p.causal) return p.seq_kv;
  // Queries near the ends of int cannot overflow: seq_q and seq_kv are below 2^30.
  const int limit = query + 1 + p.seq_kv - p.seq_q;
  return limit < 0 ? 0 : limit > p.seq_kv ? p.seq_kv : limit;
}

/// Whether the lengths of a pass's work tiles fall, under the causal mask.
GPU_SHARED_FN bool lengths_fall(const Params& p, int pass) { return (p.passes - pass) % 2 != 0; }
/// What such a word holds that counts nothing: the plan's tag.
GPU_FN std::uint64_t no_units(const Params& p) { return attention::no_count(p.plan_tag); }
/// The (batch, head) of a work tile, counted over both, and its tile of query rows.
struct WorkTilePlace {
  int batch_head, tile;
};
GPU_SHARED_FN WorkTilePlace place_of_work_tile(const Params& p, int work_tile) {
  const int pass = attention::quotient(work_tile, p.pass_work_tiles);
  const int in_pass = work_tile - pass * p.pass_work_tiles.value;
  const int first = pass * p.pass_heads.value;
  if (!p.causal) {
    const int head = attention::quotient(in_pass, p.tiles_m);
    return {first + head, in_pass - head * p.tiles_m.value};
  }
  const attention::Divisor& heads = pass + 1 == p.passes ? p.last_pass_heads : p.pass_heads;
  const int nth = attention::quotient(in_pass, heads);
  return {first + in_pass - nth * heads.value,
          lengths_fall(p, pass) ? p.tiles_m.value - 1 - nth : nth};
}
/// KV tiles of a (batch, KV head).
template <class T>
GPU_SHARED_FN int tiles_of_keys(const Params& p) {
  return (p.seq_kv + T::kTileN - 1) / T::kTileN;
}
/// Rows of a head, or of the heads that share tiles, those of nothing included.
template <class T>
GPU_SHARED_FN int rows_of_head(const Params& p) {
  if constexpr (T::kPacks) return rows_of_queries(p, p.seq_q);
  return p.seq_q;
}
/// The query of one of those.
template <class T>
GPU_SHARED_FN int query_of(const Params& p, int row) {
  if constexpr (T::kPacks) return query_of_row(p, row);
  return row;
}
/// KV tiles that any row of a tile of rows sees.
template <class T>
GPU_SHARED_FN int tiles_seen(const Params& p, int tile) {
  if (!p.causal) return tiles_of_keys<T>(p);
  const int end = (tile + 1) * T::kTileM;
  const int rows = rows_of_head<T>(p);
  const int last = (end < rows ? end : rows) - 1;
  return (key_limit(p, query_of<T>(p, last)) + T::kTileN - 1) / T::kTileN;
}

/// The same number, found where the compiler cannot see it: what follows from it is computed again
/// rather than kept.
GPU_FN int pinned(int x) {
  std::uint32_t copy[1] = {static_cast<std::uint32_t>(x)};
  gpu::pin_registers(copy);
  return static_cast<int>(copy[0]);
}

/// The lane: found again, as above, where the loop over keys has no register for it.
template <class T>
GPU_FN int lane_of_thread() {
  constexpr bool kAgain = T::kBlockScales && T::kFindsThreadAgain;
  return kAgain ? pinned(gpu::thread_idx()) % gpu::kWarpSize : gpu::lane_idx();
}

/// The first of the 16 rows of a warp, counted among the consumers', in its tile of rows.
template <class T>
GPU_FN int row_of_warp(int warp) {
  constexpr int kWarpRows = kWarpgroupRows / kWarpgroupWarps;
  return warp % (T::kRowGroups * kWarpgroupWarps) * kWarpRows;
}

/// The first of a consumer thread's two rows of a work tile; the other is 8 below. By the thread's
/// number: the compiler would keep the lane's through the loop over keys, and spill.
template <class T>
GPU_FN int first_row_of_thread(int first_row) {
  const int thread = T::kFindsThreadAgain ? pinned(gpu::thread_idx()) : gpu::thread_idx();
  return first_row + row_of_warp<T>(thread / gpu::kWarpSize - kWarpgroupWarps) + thread / 4 % 8;
}

/// A lane's two rows, the first of which is given. With Config::packs() their head is counted from
/// the first that shares the tile; of rows of nothing it is none of those, or the query is past the
/// last.
struct LaneRows {
  int query[2];
  int head;
};
template <class T>
GPU_FN LaneRows lane_rows(const Params& p, int row) {
  constexpr int kApart = kStripRows / 2;
  if constexpr (!T::kPacks) return {{row, row + kApart}, 0};
  const int query = query_of_row(p, row);
  return {{query, query + (kApart >> p.packed.log2)}, head_of_row(p, row)};
}
/// Whether the lane's row h, in a sequence of so many queries, is one of something.
template <class T>
GPU_FN bool is_row(const Params& p, const LaneRows& rows, int h, int queries) {
  return rows.query[h] < queries && (!T::kPacks || rows.head < p.packed.group);
}

/// This block's work at its step `step`, from 0; none after the last.
template <class T>
GPU_FN TileRange range_of(const Params& p, int step) {
  const int block = static_cast<int>(gpu::block_idx().x);
  constexpr TileRange kNoRange{TileRange::kNone, 0, 0, TileRange::kNone, 0};
  const int blocks = static_cast<int>(gpu::grid_dim().x);
  const Schedule& schedule = p.schedule;
  if (step < schedule.rounds) {
    const int work_tile = work_tile_of_round(step, block, blocks);
    return work_tile < p.work_tiles
               ? TileRange{work_tile, 0, TileRange::kWhole, TileRange::kNone, 0}
               : kNoRange;
  }
  const TailPlace& from = schedule.tail[block];
  const TailPlace& to = schedule.tail[block + 1];
  const int nth = step - schedule.rounds;
  const int work_tile = from.work_tile + nth;
  const int first_tile = nth == 0 ? from.tile : 0;
  if (work_tile > to.work_tile || (work_tile == to.work_tile && first_tile >= to.tile))
    return kNoRange;
  return {schedule.rounds * blocks + work_tile, first_tile,
          work_tile == to.work_tile ? to.tile : TileRange::kWhole, work_tile,
          nth == 0 ? from.split : 0};
}

/// Whether several blocks share the range's work tile.
GPU_FN bool is_cut(const Params& p, const TileRange& range) {
  if (range.tail_work_tile == TileRange::kNone) return false;
  const std::int16_t* const first_split = &p.schedule.first_split[range.tail_work_tile];
  return first_split[1] > first_split[0];
}

/// A work tile's rows, without its keys.
template <class T>
GPU_FN Work rows_of(const Params& p, const WorkTilePlace& place) {
  Work work{};
  const attention::Divisor& heads = T::kPacks ? p.packed.heads : p.heads_q;
  work.batch = attention::quotient(place.batch_head, heads);
  work.head = place.batch_head - work.batch * heads.value;
  if constexpr (T::kPacks) work.head *= p.packed.group;
  work.kv_head = attention::quotient(work.head, p.group);
  work.first_row = place.tile * T::kTileM;
  return work;
}
template <class T>
GPU_FN Work locate(const Params& p, const TileRange& range) {
  const WorkTilePlace place = place_of_work_tile(p, range.work_tile);
  Work work = rows_of<T>(p, place);
  const int tiles = tiles_seen<T>(p, place.tile);
  const int end = range.end_tile < tiles ? range.end_tile : tiles;
  work.first_tile = range.first_tile;
  work.tiles = end - range.first_tile;
  work.last_tile = end - 1;
  return work;
}

/// Keys that query `query` of the work tile's sequence sees: those below this.
template <class T>
GPU_FN int key_limit(const Params& p, const Work& work, int query) {
  if constexpr (T::kRagged) return key_limit(p, work.sequence, query);
  return key_limit(p, query);
}
/// Rows of the work tile's sequence and head, or of those that share its tiles.
template <class T>
GPU_FN int end_of_rows(const Params& p, const Work& work) {
  if constexpr (T::kRagged) return rows_of_queries(p, work.sequence.queries);
  return rows_of_head<T>(p);
}

/// What raw scores of a row of a work tile are multiplied by, in units of log2(e).
template <class T>
GPU_FN float score_scale(const Params& p, const Work& work, int row) {
  int head = work.head;
  if constexpr (T::kPacks) {
    const int of_tile = head_of_row(p, row);
    if (of_tile < p.packed.group) head += of_tile;
  }
  return p.descale_q[work.batch * p.heads_q.value + head] *
         p.descale_k[work.batch * p.heads_kv + work.kv_head] * p.softmax_scale_log2;
}

/// With Config::block_scales: where the descale of a row of Q is, and those of a head of K or V.
/// Rows past the last have that of the last.
GPU_FN std::int64_t descale_q_of(const Params& p, const Work& work, int row) {
  const int block = row / kQueriesOfBlock;
  const int last = p.q_descales - 1;
  return std::int64_t{work.batch * p.heads_q.value + work.head} * p.q_descales +
         (block < last ? block : last);
}
GPU_FN std::int64_t first_descale_kv(const Params& p, const Work& work) {
  return std::int64_t{work.batch * p.heads_kv + work.kv_head} * p.kv_descales;
}

/// A block's work at a step, from step 0 on.
template <class T>
struct NextWork {
  int step = 0;
  TileRange range;
  Work work = {};

  GPU_FN explicit NextWork(const Params& p) { find(p, 0); }
  GPU_FN bool any() const { return range.work_tile != TileRange::kNone; }
  GPU_FN void find(const Params& p, int at_step) {
    step = at_step;
    range = range_of<T>(p, step);
    if (any()) work = locate<T>(p, range);
  }
};

}  // namespace GPU_BACKEND

}  // namespace fp8_sdpa::sm90
