// Rows of tiles that the query heads of a KV head share (packed GQA), in strips: packing.hpp.
#pragma once

#include "sm90/work/packing.hpp"
#include "sm90/work/params.hpp"

namespace fp8_sdpa::sm90 {

inline namespace GPU_BACKEND {

/// Rows of so many queries of all heads that share tiles, with those of nothing.
GPU_SHARED_FN int rows_of_queries(const Params& p, int queries) {
  const int of_strip = kStripRows >> p.packed.log2;
  return (queries + of_strip - 1) / of_strip * (p.packed.strips.value * kStripRows);
}
/// A strip's place: which queries, and which heads of those that share the tile.
struct StripPlace {
  int query, head;  ///< the first ones
};
GPU_SHARED_FN StripPlace place_of_strip(const Params& p, int strip) {
  const int nth = attention::quotient(strip, p.packed.strips);
  const int of_queries = strip - nth * p.packed.strips.value;
  return {nth * (kStripRows >> p.packed.log2), of_queries << p.packed.log2};
}
GPU_SHARED_FN int query_of_row(const Params& p, int row) {
  return place_of_strip(p, row / kStripRows).query + (row % kStripRows >> p.packed.log2);
}
/// Of those that share the tile; or none of them, above.
GPU_FN int head_of_row(const Params& p, int row) {
  return place_of_strip(p, row / kStripRows).head + (row & ((1 << p.packed.log2) - 1));
}

}  // namespace GPU_BACKEND

}  // namespace fp8_sdpa::sm90
