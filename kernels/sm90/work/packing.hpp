// How the query rows of a problem fill tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/sequences.hpp"
#include "fp8_sdpa/problem.hpp"
#include "sm90/config.hpp"

namespace fp8_sdpa::sm90 {

/// Query heads of a KV head whose rows share tiles, query by query (packed GQA), as a power of two;
/// at most 8, so that the two rows of a lane, which are 8 apart, are of one head.
struct Packing {
  int tile_m;
  int log2;
  int heads;  ///< of a batch's or a sequence's work tiles: heads_q >> log2

  int pack() const { return 1 << log2; }
  std::int64_t row_tiles(std::int64_t queries) const {
    return ((queries << log2) + tile_m - 1) / tile_m;
  }
};

/// Queries of a sequence, as far as the host can tell: the mean.
inline std::int64_t mean_queries(const Problem& p) {
  return std::max<std::int64_t>(1, (attention::most_queries(p) + p.batch - 1) / p.batch);
}

/// As many heads share tiles as takes fewest of these.
inline Packing packing_of(const Config& config, const Problem& p) {
  constexpr int kMostLog2 = 3;
  Packing best{config.tile_m(), 0, p.heads_q};
  if (!config.packs() || p.q.stride_head == 0) return best;
  const auto work_tiles = [&](const Packing& packing) {
    return packing.heads * packing.row_tiles(mean_queries(p));
  };
  for (int log2 = 1; log2 <= kMostLog2 && p.heads_q / p.heads_kv % (1 << log2) == 0; ++log2) {
    const Packing packing{config.tile_m(), log2, p.heads_q >> log2};
    if (work_tiles(packing) < work_tiles(best)) best = packing;
  }
  return best;
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
