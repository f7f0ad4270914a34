// Ragged batches: work tiles of sequences whose lengths the device alone knows.
//
// A kernel before the one that multiplies puts the sequences in order, those of most keys first,
// and counts their work tiles. Persistent blocks then take work tiles there and back
// (work_tile_of_round()), long ones first: no block ends much later than others, and nobody
// counts anything down. A work tile is whole: a row's bits depend on its own sequence alone.
//
// Query heads of a KV head may share a tile (packed GQA, packing.hpp): its rows are ordered by
// query, then by head.
#pragma once

#include "sm90/work/params.hpp"

namespace fp8_sdpa::sm90 {

inline namespace GPU_BACKEND {

GPU_FN int query_of_row(const Params& p, int row) { return row >> p.ragged.pack_log2; }
/// Of those that share the tile.
GPU_FN int head_of_row(const Params& p, int row) { return row & ((1 << p.ragged.pack_log2) - 1); }

/// Keys that row `row` of a sequence sees: those below this.
GPU_FN int key_limit_of_row(const Params& p, const attention::Sequence& sequence, int row) {
  if (!p.causal) return sequence.keys;
  const int limit = query_of_row(p, row) + 1 + sequence.keys - sequence.queries;
  return limit < 0 ? 0 : limit > sequence.keys ? sequence.keys : limit;
}

/// A word that is the same in all lanes. Where a whole warp asks, the compiler is told so: what
/// follows from it is then kept once, in uniform registers.
template <bool kWarp>
GPU_FN int same_in_all(int x) {
  if constexpr (kWarp) return gpu::shfl(x, 0);
  return x;
}
/// A work tile of the sequence at place `rank` or of one behind it; by a warp (kWarp) or by one
/// thread. Under the causal mask the last rows, which see most keys, come first, of all heads; else
/// head by head, whose keys then stay in the L2 cache.
template <class T, bool kWarp>
GPU_FN Work locate_ragged(const Params& p, int work_tile, int rank) {
  constexpr auto all = same_in_all<kWarp>;
  const RaggedParams& ragged = p.ragged;
  while (work_tile >= all(ragged.order[rank + 1].first_work_tile)) ++rank;
  const RaggedSequence& found = ragged.order[rank];
  const attention::Sequence& sequence = found.sequence;
  Work work{};
  work.rank = rank;
  work.batch = all(found.batch);
  work.sequence = {all(sequence.first_query), all(sequence.queries), all(sequence.first_key),
                   all(sequence.keys),        sequence.bad_queries,  sequence.bad_keys};
  const int row_tiles = all(found.row_tiles);
  const int nth = work_tile - all(found.first_work_tile);
  int tile, nth_head;
  if (p.causal) {
    tile = attention::quotient(nth, ragged.heads);
    nth_head = nth - tile * ragged.heads.value;
    tile = row_tiles - 1 - tile;
  } else {
    nth_head = nth / row_tiles;
    tile = nth - nth_head * row_tiles;
  }
  work.head = nth_head << ragged.pack_log2;
  work.kv_head = attention::quotient(work.head, p.group);
  work.first_row = tile * T::kTileM;
  const int rows = work.sequence.queries << ragged.pack_log2;
  const int end = work.first_row + T::kTileM;
  const int seen = key_limit_of_row(p, work.sequence, (end < rows ? end : rows) - 1);
  work.tiles = (seen + T::kTileN - 1) / T::kTileN;
  work.last_tile = work.tiles - 1;
  return work;
}

/// What raw scores of a row are multiplied by, in units of log2(e).
GPU_FN float score_scale_of_row(const Params& p, const Work& work, int row) {
  const int head = work.head + head_of_row(p, row);
  return p.descale_q[work.batch * p.heads_q.value + head] *
         p.descale_k[work.batch * p.heads_kv + work.kv_head] * p.softmax_scale_log2;
}

}  // namespace GPU_BACKEND

}  // namespace fp8_sdpa::sm90
