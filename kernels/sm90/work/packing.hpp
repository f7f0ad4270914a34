// How the query rows of a problem fill tiles.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>

#include "attention/sequences.hpp"
#include "fp8_sdpa/problem.hpp"
#include "sm90/config.hpp"

namespace fp8_sdpa::sm90 {

/// The rows of a strip, which are those of a warp.
inline constexpr int kStripRows = 16;

/// Query heads of a KV head whose rows share tiles (packed GQA), in strips: `strips` of them after
/// each other have the same queries, each of 2^log2 heads; then come those of the next queries. In
/// a strip rows are in the order of query, then head: a lane's two, 8 apart, are of one head. Heads
/// of the last strip that the group does not have are rows of nothing.
struct Packing {
  int tile_m;
  int heads;  ///< of a batch's or a sequence's work tiles: heads_q / group
  int group = 1;
  int log2 = 0;
  int strips = 1;

  int queries_of_strip() const { return kStripRows >> log2; }
  std::int64_t rows(std::int64_t queries) const {
    return (queries + queries_of_strip() - 1) / queries_of_strip() * strips * kStripRows;
  }
  std::int64_t row_tiles(std::int64_t queries) const {
    return (rows(queries) + tile_m - 1) / tile_m;
  }
  /// Queries that the first tiles have rows of.
  std::int64_t queries_of(std::int64_t tiles) const {
    return (tiles * (tile_m / kStripRows) + strips - 1) / strips * queries_of_strip();
  }
};

/// Queries of a sequence, as far as the host can tell: the mean.
inline std::int64_t mean_queries(const Problem& p) {
  return std::max<std::int64_t>(1, (attention::most_queries(p) + p.batch - 1) / p.batch);
}

/// The heads of a group share tiles if that takes fewer, and an int counts their rows; in the
/// strips that make fewest, of equal ones in the fewest.
inline Packing packing_of(const Config& config, const Problem& p) {
  constexpr int kMostLog2 = 3;
  constexpr std::int64_t kMostRows = INT_MAX / 2;
  const Packing alone{config.tile_m(), p.heads_q};
  if (!config.packs() || p.q.stride_head == 0) return alone;
  const int group = p.heads_q / p.heads_kv;
  const std::int64_t queries = mean_queries(p);
  const auto shared_by = [&](int log2) {
    const int strips = (group + (1 << log2) - 1) >> log2;
    return Packing{config.tile_m(), p.heads_kv, group, log2, strips};
  };
  Packing shared = shared_by(0);
  for (int log2 = 1; log2 <= kMostLog2; ++log2) {
    const Packing other = shared_by(log2);
    const std::int64_t more = other.rows(queries) - shared.rows(queries);
    if (more < 0 || (more == 0 && other.strips < shared.strips)) shared = other;
  }
  const auto work_tiles = [&](const Packing& packing) {
    return packing.heads * packing.row_tiles(queries);
  };
  const bool fewer = work_tiles(shared) < work_tiles(alone);
  return fewer && shared.rows(p.seq_q) <= kMostRows ? shared : alone;
}

/// Keys of a box of K or V: a tile's, or of those of one page.
inline int keys_of_box(const Problem& p, int tile_keys) {
  return p.pages.block_table == nullptr ? tile_keys : std::min(p.pages.page_size, tile_keys);
}

/// Work tiles of all sequences, at most.
inline std::int64_t most_work_tiles(const Packing& packing, const Problem& p) {
  const std::int64_t padded = p.batch * packing.row_tiles(p.seq_q);
  if (p.ragged.cu_seqlens_q == nullptr) return packing.heads * padded;
  return packing.heads * std::min(padded, packing.row_tiles(attention::most_queries(p)) + p.batch);
}

}  // namespace fp8_sdpa::sm90
