// What the kernel is told, and what a block makes of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/divisor.hpp"
#include "attention/head_view.hpp"
#include "attention/online_softmax.hpp"
#include "decode/config.hpp"
#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::decode {

/// Partial results of KV splits, in the workspace: what the merge reads. Of split `split` of KV
/// head `unit` (counted over the batch) the index is unit * splits + split.
struct Splits {
  /// (index, row group, head_dim / 16, 2, lane): four dims of row g + 8 h, kernel.cuh.
  float4* o;
  attention::RowState* rows;  ///< (index, row)
  std::uint64_t* arrived;     ///< (unit): tag and count
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
  attention::Strides k_strides, v_strides;  ///< with pages, batch is that of a page
  attention::Divisor heads_kv, group;       ///< group: query heads of a KV head
  int seq_q;
  int rows;                         ///< seq_q * group
  int seq_kv;                       ///< with seqused_kv, the most
  const std::int32_t* seqused_kv;   ///< or null
  const std::int32_t* block_table;  ///< or null
  int pages, max_pages;
  attention::Divisor page_size;
  std::uint32_t* fault;           ///< or null
  attention::Divisor split_keys;  ///< keys of a split
  attention::Divisor splits;      ///< of seq_kv keys
  std::uint64_t tag;              ///< of this plan's counts
  Splits to;
  float softmax_scale_log2;
  bool causal;
  Dtype output;
};

/// A plan: the kernel's arguments, its grid, and where parts lie in the workspace.
struct Prepared {
  Params params;
  int blocks;
  Dtype input;
  std::size_t rows_offset, arrived_offset;
};

inline namespace GPU_BACKEND {

/// Split `split` of one KV head of one sequence: keys [first, end).
struct Work {
  int batch, kv_head, unit, split;
  int keys;    ///< of the sequence
  int splits;  ///< of the sequence, at least one; splits from there on have nothing to do
  int first, end;
  bool bad_length;  ///< it has no keys then, and its rows are NaN
};

GPU_FN Work work_of_block(const Params& p) {
  Work work{};
  const int block = static_cast<int>(gpu::block_idx().x);
  work.unit = attention::quotient(block, p.splits);
  work.split = block - work.unit * p.splits.value;
  work.batch = attention::quotient(work.unit, p.heads_kv);
  work.kv_head = work.unit - work.batch * p.heads_kv.value;
  work.keys = p.seqused_kv != nullptr ? p.seqused_kv[work.batch] : p.seq_kv;
  work.bad_length = work.keys < 0 || work.keys > p.seq_kv;
  if (work.bad_length) work.keys = 0;
  const int needed = attention::quotient(work.keys + p.split_keys.value - 1, p.split_keys);
  work.splits = needed > 1 ? needed : 1;
  work.first = work.split * p.split_keys.value;
  work.end =
      work.keys - work.first > p.split_keys.value ? work.first + p.split_keys.value : work.keys;
  return work;
}

/// A query row of a KV head: rows are ordered by query, then by head.
struct Row {
  int query, head;
  bool exists;
};
GPU_FN Row row_of(const Params& p, const Work& work, int row) {
  const int query = attention::quotient(row, p.group);
  return {query, work.kv_head * p.group.value + row - query * p.group.value, row < p.rows};
}

/// Keys that a query sees: those below this.
GPU_FN int key_limit(const Params& p, const Work& work, int query) {
  return p.causal ? work.keys + query + 1 - p.seq_q : work.keys;
}

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::decode
