// The kernel's arguments, and how its persistent blocks share the work.
//
// A work item is a tile of query rows of one (batch, head). Block b takes items b, 2 G - 1 - b,
// 2 G + b, 4 G - 1 - b, ... of G blocks: there and back, so that the sums even out where lengths
// change steadily. Items come in passes of as many heads as the L2 cache holds. Under the causal
// mask their lengths fall in the last pass, rise in the one before it, and so on: no jump between
// passes would even out, and what is dealt last is short.
#pragma once

#include <cstdint>

#include "attention/head_view.hpp"
#include "fp8_sdpa/problem.hpp"
#include "gpu/hopper.hpp"

namespace fp8_sdpa::sm90 {

/// How a (batch, head) becomes TMA coordinates: a broadcast dimension (stride 0) has one entry.
struct MapSteps {
  int head, batch;  ///< 1, or 0 if broadcast
};

struct Params {
  gpu::TensorMap q, k, v;
  void* o;
  float* lse;  ///< or null
  const float* descale_q;
  const float* descale_k;
  const float* descale_v;
  attention::Strides o_strides;
  MapSteps q_steps, k_steps, v_steps;
  int heads_q, heads_kv;
  int seq_q, seq_kv;
  int tiles_m;         ///< work items of a (batch, head)
  int items;           ///< in all
  int heads_per_pass;  ///< (batch, head) pairs of one pass; the last may have fewer
  int passes;
  float softmax_scale_log2;
  bool causal;
  bool v_transposed;
  Dtype output;
};

/// One work item, as this block sees it.
struct Work {
  int batch, head, kv_head;
  int first_row;
  int tiles;      ///< KV tiles of this block, of those that any row of the item sees
  int last_tile;  ///< the last of them; every T::kClusterBlocks-th before it is this block's too
};

/// Keys that query row `row` sees: those below this.
GPU_FN int key_limit(const Params& p, int row) {
  if (!p.causal) return p.seq_kv;
  // Rows near the ends of int cannot overflow: seq_q and seq_kv are below 2^30.
  const int limit = row + 1 + p.seq_kv - p.seq_q;
  return limit < 0 ? 0 : limit > p.seq_kv ? p.seq_kv : limit;
}

/// Calls `call(item)` for the items of this block, in order. A cluster has one: its barrier waits
/// for threads that have not exited, and producers would go on to the next item.
template <class T, class Call>
GPU_FN void for_each_item(const Params& p, const Call& call) {
  if constexpr (T::kClusterBlocks > 1) {
    call(static_cast<int>(gpu::block_idx().x) / T::kClusterBlocks);
    return;
  }
  const int blocks = static_cast<int>(gpu::grid_dim().x);
  const int block = static_cast<int>(gpu::block_idx().x);
  bool back = false;
  for (int first = 0; first < p.items; first += blocks) {
    const int item = first + (back ? blocks - 1 - block : block);
    if (item < p.items) call(item);
    back = !back;
  }
}

template <class T>
GPU_FN Work locate(const Params& p, int item) {
  constexpr int kTileM = T::kTileM;
  constexpr int kTileN = T::kTileN;
  const int pass_items = p.tiles_m * p.heads_per_pass;
  const int pass = item / pass_items;
  const int in_pass = item - pass * pass_items;
  int bh = pass * p.heads_per_pass;
  int tile = 0;
  if (p.causal) {
    const int left = p.items / p.tiles_m - bh;
    const int heads = left < p.heads_per_pass ? left : p.heads_per_pass;
    const bool falling = (p.passes - pass) % 2 != 0;
    tile = falling ? p.tiles_m - 1 - in_pass / heads : in_pass / heads;
    bh += in_pass % heads;
  } else {
    tile = in_pass % p.tiles_m;
    bh += in_pass / p.tiles_m;
  }
  Work work{};
  work.batch = bh / p.heads_q;
  work.head = bh % p.heads_q;
  work.kv_head = work.head / (p.heads_q / p.heads_kv);
  work.first_row = tile * kTileM;
  const int end = work.first_row + kTileM;
  work.tiles = (key_limit(p, (end < p.seq_q ? end : p.seq_q) - 1) + kTileN - 1) / kTileN;
  work.last_tile = work.tiles - 1;
  if constexpr (T::kClusterBlocks > 1) {
    const int rank = gpu::cluster_rank();
    work.last_tile -= rank;
    work.tiles = (work.tiles - rank + T::kClusterBlocks - 1) / T::kClusterBlocks;
  }
  return work;
}

}  // namespace fp8_sdpa::sm90
