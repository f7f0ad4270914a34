// Rows of tiles that the query heads of a KV head share (packed GQA, packing.hpp): ordered by
// query, then by head.
#pragma once

#include "sm90/work/params.hpp"

namespace fp8_sdpa::sm90 {

inline namespace GPU_BACKEND {

GPU_SHARED_FN int query_of_row(const Params& p, int row) { return row >> p.packed.log2; }
/// Of those that share the tile.
GPU_FN int head_of_row(const Params& p, int row) { return row & ((1 << p.packed.log2) - 1); }

/// What raw scores of a row are multiplied by, in units of log2(e).
GPU_FN float score_scale_of_row(const Params& p, const Work& work, int row) {
  const int head = work.head + head_of_row(p, row);
  return p.descale_q[work.batch * p.heads_q.value + head] *
         p.descale_k[work.batch * p.heads_kv + work.kv_head] * p.softmax_scale_log2;
}

}  // namespace GPU_BACKEND

}  // namespace fp8_sdpa::sm90
