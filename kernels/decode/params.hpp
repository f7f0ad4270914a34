// What the kernel is told, and what a block makes of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/divisor.hpp"
#include "attention/head_view.hpp"
#include "attention/online_softmax.hpp"
#include "attention/sequences.hpp"
#include "decode/config.hpp"
#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::decode {

/// Partial results of KV splits, in the workspace: what the merge reads. Of split `split` of tile
/// of rows `unit` (counted over the batch) the index is unit * splits + split.
struct Splits {
  /// (index, row group, head_dim / 16, 2, lane): four dims of row g + 8 h, kernel.cuh.
  float4* o;
  attention::RowState* rows;  ///< (index, row)
  std::uint64_t* arrived;     ///< (unit): tag and count
};

/// Strides of K or V in units of 16 bytes: 32 bits, so that one shuffle tells where a row begins,
/// reach 64 GiB.
struct RowChunks {
  std::uint32_t batch, head, seq;
};

struct Params {
  const std::uint8_t* q;
  const std::uint8_t* k;
  const std::uint8_t* v;
  void* o;
  float* lse;  ///< or null
  const float* descale_q;
  const float* descale_k;
  const float* descale_v;
  attention::Strides q_strides, o_strides;
  RowChunks k_rows, v_rows;  ///< with pages, batch is that of a page
  int heads_kv;
  attention::Divisor head_tiles;  ///< tiles of KV heads
  attention::Divisor group;       ///< query heads of a KV head
  attention::Divisor row_tiles;   ///< of a KV head, at most
  int tile_heads, tile_rows;      ///< KV heads of a tile, and rows of each
  attention::Sequences sequences;
  const std::int32_t* block_table;  ///< or null
  int pages;                        ///< of the pool; without pages more than there are batches
  int max_pages;
  attention::Divisor page_size;
  std::uint32_t* fault;           ///< or null
  attention::Divisor split_keys;  ///< keys of a split
  attention::Divisor splits;      ///< of the most keys
  std::uint64_t tag;              ///< of this plan's counts
  Splits to;
  float softmax_scale_log2;
  bool causal;
  Dtype output;
  const float* o_scale;  ///< with an output of E4M3
};

/// A plan: the kernel's arguments, its grid, and where parts lie in the workspace.
struct Prepared {
  Params params;
  int blocks;
  Dtype input;
  std::size_t rows_offset, arrived_offset;
};

inline namespace GPU_BACKEND {

/// Split `split` of a tile of rows of one KV head of one sequence, or of two heads: keys [first,
/// end), of which those that no row of the tile sees are left out.
struct Work {
  int batch, kv_head, unit, split;
  attention::Sequence sequence;
  int first_row;  ///< of the KV head's, queries * group in all
  int rows;       ///< of the tile, of each KV head; none are behind the sequence's last
  int splits;     ///< of the sequence, at least one; splits from there on have nothing to do
  int first, end;
};

/// A query row of a KV head: rows are ordered by query, then by head.
struct Row {
  int query, head, kv_head;
  bool exists;
};
/// `row` counts in the tile.
GPU_FN Row row_of(const Params& p, const Work& work, int row) {
  const int nth_head = row < p.tile_rows ? 0 : 1;
  const int kv_head = work.kv_head + nth_head;
  const int in_head = row - nth_head * p.tile_rows;
  const int of_head = work.first_row + in_head;
  const int query = attention::quotient(of_head, p.group);
  return {query, kv_head * p.group.value + of_head - query * p.group.value, kv_head,
          in_head < work.rows};
}

/// Keys that a query sees: those below this.
GPU_FN int key_limit(const Params& p, const Work& work, int query) {
  const attention::Sequence& s = work.sequence;
  return p.causal ? s.keys + query + 1 - s.queries : s.keys;
}

/// What a block knows before anything in memory is read: the lengths are not yet.
GPU_FN Work place_of_block(const Params& p) {
  Work work{};
  const int block = static_cast<int>(gpu::block_idx().x);
  work.unit = attention::quotient(block, p.splits);
  work.split = block - work.unit * p.splits.value;
  const int batch_head = attention::quotient(work.unit, p.row_tiles);
  work.first_row = (work.unit - batch_head * p.row_tiles.value) * p.tile_rows;
  work.batch = attention::quotient(batch_head, p.head_tiles);
  work.kv_head = (batch_head - work.batch * p.head_tiles.value) * p.tile_heads;
  work.first = work.split * p.split_keys.value;
  return work;
}

/// The rest of it.
GPU_FN void read_lengths(const Params& p, Work& work) {
  work.sequence = attention::sequence_of(p.sequences, work.batch);
  const int rows = work.sequence.queries * p.group.value - work.first_row;
  work.rows = rows < p.tile_rows ? rows : p.tile_rows;
  const int keys = work.sequence.keys;
  const int needed = attention::quotient(keys + p.split_keys.value - 1, p.split_keys);
  work.splits = needed > 1 ? needed : 1;
  work.end = keys - work.first > p.split_keys.value ? work.first + p.split_keys.value : keys;
  if (work.rows > 0) {
    const int seen = key_limit(p, work, row_of(p, work, work.rows - 1).query);
    if (seen < work.end) work.end = seen;
  }
}

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::decode
