// Ragged batches: work tiles of sequences whose lengths the device alone knows.
//
// A kernel before the one that multiplies puts the sequences in order, those of most keys first,
// and counts their work tiles. Persistent blocks then take work tiles there and back
// (work_tile_of_round()), long ones first: no block ends much later than others, and nobody
// counts anything down. A work tile is whole: a row's bits depend on its own sequence alone. The
// producer's loader finds them, a work tile ahead, and tells the consumers (RaggedState).
//
// Query heads of a KV head may share a tile: packed_rows.cuh.
#pragma once

#include "sm90/work/packed_rows.cuh"

namespace fp8_sdpa::sm90 {

inline namespace GPU_BACKEND {

/// Keys that query `query` of a sequence sees: those below this.
GPU_FN int key_limit(const Params& p, const attention::Sequence& sequence, int query) {
  if (!p.causal) return sequence.keys;
  const int limit = query + 1 + sequence.keys - sequence.queries;
  return limit < 0 ? 0 : limit > sequence.keys ? sequence.keys : limit;
}

/// A word that is the same in all lanes. The compiler is told so: what follows from it is then kept
/// once, in uniform registers.
GPU_FN int same_in_all(int x) { return gpu::shfl(x, 0); }

/// The place of a work tile's sequence in the order, by a whole warp; it is at `rank` or behind.
GPU_FN int find_rank(const RaggedParams& ragged, int work_tile, int rank) {
  for (;;) {
    const int at = rank + gpu::lane_idx();
    int begun = at <= ragged.batch && ragged.order[at].first_work_tile <= work_tile ? 1 : 0;
#pragma unroll
    for (int lanes = 1; lanes < gpu::kWarpSize; lanes *= 2) begun += gpu::shfl_xor(begun, lanes);
    rank += same_in_all(begun) - 1;
    if (begun < gpu::kWarpSize) return rank;
  }
}
/// A work tile of the sequence at place `rank`. Under the causal mask the last rows, which see most
/// keys, come first, of all heads; else head by head, whose keys then stay in the L2 cache.
template <class T>
GPU_FN Work locate_ragged(const Params& p, int work_tile, int rank) {
  const RaggedParams& ragged = p.ragged;
  const RaggedSequence& found = ragged.order[rank];
  Work work{};
  work.batch = found.batch;
  work.sequence = found.sequence;
  const int nth = work_tile - found.first_work_tile;
  int tile, nth_head;
  if (p.causal) {
    tile = attention::quotient(nth, p.packed.heads);
    nth_head = nth - tile * p.packed.heads.value;
    tile = found.row_tiles - 1 - tile;
  } else {
    nth_head = nth / found.row_tiles;
    tile = nth - nth_head * found.row_tiles;
  }
  work.head = nth_head * p.packed.group;
  work.kv_head = attention::quotient(work.head, p.group);
  work.first_row = tile * T::kTileM;
  // The last tile's rows of nothing see as many keys as the last query does: all.
  const int last = work.first_row + T::kTileM - 1;
  const int seen = key_limit(p, work.sequence, query_of_row(p, last));
  work.tiles = (seen + T::kTileN - 1) / T::kTileN;
  work.last_tile = work.tiles - 1;
  return work;
}
/// The same in all lanes, of words that each has read.
GPU_FN Work same_in_all(const Work& x) {
  Work work{};
  work.batch = same_in_all(x.batch);
  work.head = same_in_all(x.head);
  work.kv_head = same_in_all(x.kv_head);
  work.first_row = same_in_all(x.first_row);
  work.tiles = same_in_all(x.tiles);
  work.last_tile = work.tiles - 1;
  work.sequence.first_query = same_in_all(x.sequence.first_query);
  work.sequence.queries = same_in_all(x.sequence.queries);
  work.sequence.first_key = same_in_all(x.sequence.first_key);
  work.sequence.keys = same_in_all(x.sequence.keys);
  return work;
}

}  // namespace GPU_BACKEND

}  // namespace fp8_sdpa::sm90
