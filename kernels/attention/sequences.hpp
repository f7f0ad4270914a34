// Where the sequences of a batch lie and how long they are, as Ragged and Pages say: on the host
// the most of each, on the device what is so when the kernel runs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// The batch and seq axes of a tensor: packed sequences are one, pages are sequences.
struct RowsOf {
  int batch;
  std::int64_t seq;
};
/// Of q and o. None at all count as one.
inline RowsOf rows_of_q(const Problem& p) {
  if (p.ragged.cu_seqlens_q == nullptr) return {p.batch, p.seq_q};
  return {1, std::max<std::int64_t>(p.ragged.total_q, 1)};
}
/// Of k and v.
inline RowsOf rows_of_kv(const Problem& p) {
  if (p.pages.block_table != nullptr) return {p.pages.pages, p.pages.page_size};
  if (p.ragged.cu_seqlens_kv == nullptr) return {p.batch, p.seq_kv};
  return {1, std::max<std::int64_t>(p.ragged.total_kv, 1)};
}
/// Whether the device knows lengths or places that the host does not.
inline bool is_ragged_or_paged(const Problem& p) {
  return p.ragged.cu_seqlens_q != nullptr || p.ragged.cu_seqlens_kv != nullptr ||
         p.ragged.seqused_kv != nullptr || p.pages.block_table != nullptr;
}
/// Queries of all sequences, at most.
inline std::int64_t most_queries(const Problem& p) {
  const std::int64_t padded = p.batch * p.seq_q;
  return p.ragged.cu_seqlens_q == nullptr ? padded : std::min(padded, p.ragged.total_q);
}

/// Ragged, as a kernel is told.
struct Sequences {
  const std::int32_t* cu_seqlens_q;   ///< or null
  const std::int32_t* cu_seqlens_kv;  ///< or null
  const std::int32_t* seqused_kv;     ///< or null
  int total_q, total_kv;
  int seq_q, seq_kv;  ///< the most of a sequence
};
inline Sequences sequences_of(const Problem& p) {
  return {p.ragged.cu_seqlens_q,
          p.ragged.cu_seqlens_kv,
          p.ragged.seqused_kv,
          static_cast<int>(p.ragged.total_q),
          static_cast<int>(p.ragged.total_kv),
          static_cast<int>(p.seq_q),
          static_cast<int>(p.seq_kv)};
}

/// One sequence. `first` counts in the packed rows, and is 0 where they are not packed.
struct Sequence {
  int first_query, queries;
  int first_key, keys;
  /// A length that is none counts as 0. Without queries nothing is written; without keys that can
  /// be believed, rows are NaN.
  bool bad_queries, bad_keys;
};

inline namespace GPU_BACKEND {

/// Rows [from, to) of `total`: as many as that, or -1 if they are none or more than `most`.
GPU_FN int length_of_rows(int from, int to, int total, int most) {
  if (from < 0 || to < from || to > total) return -1;
  return to - from > most ? -1 : to - from;
}

GPU_FN Sequence sequence_of(const Sequences& s, int batch) {
  Sequence is{0, s.seq_q, 0, s.seq_kv, false, false};
  if (s.cu_seqlens_q != nullptr) {
    is.first_query = s.cu_seqlens_q[batch];
    is.queries = length_of_rows(is.first_query, s.cu_seqlens_q[batch + 1], s.total_q, s.seq_q);
  }
  if (s.cu_seqlens_kv != nullptr) {
    is.first_key = s.cu_seqlens_kv[batch];
    is.keys = length_of_rows(is.first_key, s.cu_seqlens_kv[batch + 1], s.total_kv, s.seq_kv);
  } else if (s.seqused_kv != nullptr) {
    is.keys = s.seqused_kv[batch];
  }
  is.bad_queries = is.queries < 0;
  is.bad_keys = is.keys < 0 || is.keys > s.seq_kv;
  if (is.bad_queries) is.queries = 0;
  if (is.bad_keys) is.keys = 0;
  return is;
}

/// The LSE of row 0 of the sequence.
GPU_FN std::int64_t first_lse(const Sequences& s, const Sequence& is, int heads, int batch,
                              int head) {
  if (s.cu_seqlens_q != nullptr)
    return static_cast<std::int64_t>(head) * s.total_q + is.first_query;
  return (static_cast<std::int64_t>(batch) * heads + head) * s.seq_q;
}

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::attention
