// The sequences of a problem elsewhere: keys in pages or packed, queries packed, among others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "tests/outputs.hpp"

namespace fp8_sdpa::tests {

/// Whether a half or bf16 row is NaN in each element.
inline bool is_nan(const Problem& p, const std::uint16_t* row) {
  const int infinity = p.o.dtype == Dtype::kHalf ? 0x7C00 : 0x7F80;
  for (int dim = 0; dim < p.head_dim; ++dim) {
    if ((row[dim] & 0x7FFF) <= infinity) return false;
  }
  return true;
}

inline bool any_row_is_nan(const Problem& p) {
  bool any = false;
  visit_output(p, [&](const std::uint16_t* row) { any = any || is_nan(p, row); });
  return any;
}

/// A problem of equal sequences in host memory, its V row-major, as a ragged batch. With packed
/// queries there are some sequences more: two have the last few queries of the first, and its keys,
/// `without_queries` between them have no queries, one no keys; without a mask one has the queries
/// of the first three times and a fourth time the first.
class MovedBatch {
 public:
  enum class Keys { kPaged, kPacked };
  static constexpr std::int32_t kNoPage = std::numeric_limits<std::int32_t>::max();

  /// O and LSE stay where they are, as queries do, unless `pack_queries`.
  MovedBatch(const Problem& from, Keys keys, int page_size, bool pack_queries,
             int without_queries = 1)
      : problem(from), from_(from) {
    for (int b = 0; b < from.batch; ++b) sequences_.push_back({b, 0, from.seq_q, from.seq_kv});
    if (pack_queries) {
      const std::int64_t few = from.seq_q < 3 ? from.seq_q : 3;
      sequences_.push_back({0, from.seq_q - few, few, from.seq_kv});
      sequences_.insert(sequences_.end(), static_cast<std::size_t>(without_queries),
                        {0, 0, 0, from.seq_kv});
      sequences_.push_back({0, from.seq_q - few, few, from.seq_kv});
      sequences_.push_back({0, 0, few, 0});
      if (from.mask == Mask::kNone) {
        sequences_.push_back({0, 0, 3 * from.seq_q + 1, from.seq_kv});
        problem.seq_q = sequences_.back().queries;
      }
    }
    problem.batch = static_cast<int>(sequences_.size());
    problem.fault = &fault;
    move_scales();
    if (pack_queries) move_queries();
    keys == Keys::kPaged ? page_keys(page_size) : pack_keys();
  }

  Problem problem;
  std::vector<std::int32_t> table, lengths;  ///< with pages; the last sequence's last
  std::vector<std::int32_t> offsets_q, offsets_kv;
  std::uint32_t fault = 0;

  /// Of packed queries: what differs from O and LSE of the problem, of which it is made; or "". O
  /// of sequences from `first_nan` to `last_nan` must be NaN, as it was poisoned or as it was
  /// written.
  std::string difference(std::size_t first_nan = 1, std::size_t last_nan = 0) const {
    const std::int64_t dim = from_.head_dim;
    std::vector<bool> known(o_.size() / static_cast<std::size_t>(dim), false);
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const Sequence& is = sequences_[s];
      const bool all_nan = s >= first_nan && s <= last_nan;
      for (int h = 0; h < from_.heads_q; ++h) {
        for (std::int64_t i = 0; i < is.queries; ++i) {
          const std::int64_t row = (first_query_[s] + i) * from_.heads_q + h;
          known[static_cast<std::size_t>(row)] = true;
          const std::int64_t query = (is.first_query + i) % from_.seq_q;
          const auto* const want = static_cast<const std::uint16_t*>(from_.o.data) +
                                   is.batch * from_.o.stride_batch + h * from_.o.stride_head +
                                   query * from_.o.stride_seq;
          if (all_nan) {
            if (!is_nan(from_, &o_[static_cast<std::size_t>(row * dim)])) return "a row of nothing";
            continue;
          }
          const std::string where = "sequence " + std::to_string(s) + ", head " +
                                    std::to_string(h) + ", query " + std::to_string(i);
          for (std::int64_t d = 0; d < dim; ++d) {
            const std::uint16_t got = o_[static_cast<std::size_t>(row * dim + d)];
            if (got != (is.keys > 0 ? want[d] : 0)) return "O of " + where;
          }
          if (from_.lse == nullptr) continue;
          const float lse =
              lse_[static_cast<std::size_t>(h * problem.ragged.total_q + first_query_[s] + i)];
          const float wanted = is.keys > 0
                                   ? from_.lse[(is.batch * from_.heads_q + h) * from_.seq_q + query]
                                   : -INFINITY;
          if (!(lse == wanted) && !(std::isnan(lse) && std::isnan(wanted))) {
            return "the LSE of " + where;
          }
        }
      }
    }
    for (std::size_t row = 0; row < known.size(); ++row) {
      for (std::int64_t d = 0; d < dim && !known[row]; ++d) {
        if (o_[row * static_cast<std::size_t>(dim) + static_cast<std::size_t>(d)] != 0xFFFF) {
          return "a row that no sequence has";
        }
      }
    }
    return "";
  }
  /// NaN in all of O and LSE.
  void forget() {
    o_.assign(o_.size(), 0xFFFF);
    lse_.assign(lse_.size(), std::numeric_limits<float>::quiet_NaN());
  }

 private:
  struct Sequence {
    int batch;  ///< in `from`
    std::int64_t first_query, queries, keys;
  };

  static std::uint8_t* aligned(std::vector<std::uint8_t>& memory, std::int64_t bytes) {
    constexpr std::uintptr_t kAlignment = 16;
    memory.assign(static_cast<std::size_t>(bytes) + kAlignment, 0xFF);
    return memory.data() +
           (kAlignment - reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment);
  }
  const std::uint8_t* row_of(const Tensor& t, int b, int h, std::int64_t row) const {
    return static_cast<const std::uint8_t*>(t.data) + b * t.stride_batch + h * t.stride_head +
           row * t.stride_seq;
  }
  void copy_row(std::uint8_t* to, const std::uint8_t* row) const {
    std::memcpy(to, row, static_cast<std::size_t>(from_.head_dim));
  }
  /// cu_seqlens, from 1 on; one row is left behind the last.
  template <class Length>
  std::vector<std::int32_t> offsets_of(const Length& length) const {
    std::vector<std::int32_t> offsets = {1};
    for (const Sequence& is : sequences_) {
      offsets.push_back(offsets.back() + static_cast<std::int32_t>(length(is)));
    }
    return offsets;
  }

  void move_scales() {
    const auto move = [&](const float* scales, int heads, std::vector<float>& to) {
      for (const Sequence& is : sequences_) {
        to.insert(to.end(), scales + is.batch * heads, scales + (is.batch + 1) * heads);
      }
      return to.data();
    };
    problem.descales = {move(from_.descales.q, from_.heads_q, scales_[0]),
                        move(from_.descales.k, from_.heads_kv, scales_[1]),
                        move(from_.descales.v, from_.heads_kv, scales_[2])};
  }
  void move_queries() {
    first_query_ = offsets_q = offsets_of([](const Sequence& is) { return is.queries; });
    const std::int64_t total = offsets_q.back() + 1;
    const std::int64_t dim = from_.head_dim;
    const std::int64_t row = from_.heads_q * dim;
    auto* const first = aligned(q_, total * row);
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const Sequence& is = sequences_[s];
      for (int h = 0; h < from_.heads_q; ++h) {
        for (std::int64_t i = 0; i < is.queries; ++i) {
          copy_row(first + (offsets_q[s] + i) * row + h * dim,
                   row_of(from_.q, is.batch, h, (is.first_query + i) % from_.seq_q));
        }
      }
    }
    problem.q = {first, from_.q.dtype, 0, dim, row, 1};
    o_.resize(static_cast<std::size_t>(total * row));
    lse_.resize(static_cast<std::size_t>(total * from_.heads_q));
    forget();
    problem.o = {o_.data(), from_.o.dtype, 0, dim, row, 1};
    if (from_.lse != nullptr) problem.lse = lse_.data();
    problem.ragged.cu_seqlens_q = offsets_q.data();
    problem.ragged.total_q = total;
  }
  /// K and V, key by key where `place_of` says, in rows of all heads.
  template <class Place>
  void place_keys(std::int64_t rows, std::int64_t stride_batch, const Place& place_of) {
    const std::int64_t dim = from_.head_dim;
    const std::int64_t row = from_.heads_kv * dim;
    const auto place = [&](const Tensor& tensor, std::vector<std::uint8_t>& memory) {
      auto* const first = aligned(memory, rows * row);
      for (std::size_t s = 0; s < sequences_.size(); ++s) {
        for (int h = 0; h < from_.heads_kv; ++h) {
          for (std::int64_t key = 0; key < sequences_[s].keys; ++key) {
            copy_row(first + place_of(s, key) * row + h * dim,
                     row_of(tensor, sequences_[s].batch, h, key));
          }
        }
      }
      return Tensor{first, tensor.dtype, stride_batch * row, dim, row, 1};
    };
    problem.k = place(from_.k, k_);
    problem.v = place(from_.v, v_);
  }
  void pack_keys() {
    offsets_kv = offsets_of([](const Sequence& is) { return is.keys; });
    problem.ragged.cu_seqlens_kv = offsets_kv.data();
    problem.ragged.total_kv = offsets_kv.back() + 1;
    place_keys(problem.ragged.total_kv, 0,
               [&](std::size_t s, std::int64_t key) { return offsets_kv[s] + key; });
  }
  void page_keys(int page_size) {
    const auto used = static_cast<int>((from_.seq_kv + page_size - 1) / page_size);
    const int columns = used + 2;
    const int all = problem.batch * used;
    problem.seq_kv = from_.seq_kv + page_size;
    problem.pages = {nullptr, all + 2, page_size, columns};
    table.assign(static_cast<std::size_t>(problem.batch * columns), kNoPage);
    for (int i = 0; i < all; ++i) {
      if (sequences_[static_cast<std::size_t>(i / used)].keys == 0) continue;
      table[static_cast<std::size_t>(i / used * columns + i % used)] = all - i;
    }
    for (const Sequence& is : sequences_) lengths.push_back(static_cast<std::int32_t>(is.keys));
    problem.pages.block_table = table.data();
    problem.ragged.seqused_kv = lengths.data();
    place_keys(problem.pages.pages * std::int64_t{page_size}, page_size,
               [&](std::size_t s, std::int64_t key) {
                 const std::int64_t page = table[s * static_cast<std::size_t>(columns) +
                                                 static_cast<std::size_t>(key / page_size)];
                 return page * page_size + key % page_size;
               });
  }

  Problem from_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> first_query_;  ///< offsets_q, as they were made
  std::vector<std::uint8_t> q_, k_, v_;
  std::vector<std::uint16_t> o_;
  std::vector<float> lse_, scales_[3];
};

/// The last sequence's length or a page of it is none: it says so, in every row, and the others do
/// not. Only where nothing of O, which a run has left, is NaN already. `run(problem)` plans and
/// launches; O is forgotten before.
template <class Run>
Status try_hostile(MovedBatch& paged, const Run& run) {
  const Problem& p = paged.problem;
  if (any_row_is_nan(p)) return {};
  const std::vector<std::int32_t> table = paged.table, lengths = paged.lengths;
  const std::int32_t first_page = table[table.size() - p.pages.max_pages];
  struct Wrong {
    std::int32_t page, length;
  };
  for (const Wrong& wrong : {Wrong{-1, lengths.back()},
                             {p.pages.pages, lengths.back()},
                             {first_page, -1},
                             {first_page, static_cast<std::int32_t>(p.seq_kv) + 1}}) {
    paged.table[table.size() - p.pages.max_pages] = wrong.page;
    paged.lengths.back() = wrong.length;
    // Behind the last key, too, are pages that exist.
    if (wrong.length != lengths.back())
      std::replace(paged.table.begin(), paged.table.end(), MovedBatch::kNoPage, 0);
    paged.fault = 0;
    forget_output(p);
    const Status ran = run(p);
    if (!ran.ok()) return ran;
    std::int64_t nan_rows = 0;
    visit_output(p, [&](const std::uint16_t* row) { nan_rows += is_nan(p, row) ? 1 : 0; });
    if (paged.fault != 1 || nan_rows != p.heads_q * p.seq_q) {
      return {StatusCode::kExecutorError, "a page or a length that is none is not told"};
    }
    if (p.lse != nullptr && !std::isnan(p.lse[p.batch * p.heads_q * p.seq_q - 1])) {
      return {StatusCode::kExecutorError, "the LSE of a page that is none is a number"};
    }
  }
  paged.table = table;
  paged.lengths = lengths;
  paged.fault = 0;
  return {};
}

/// Offsets that no tensor has, between the last of the problem's sequences and the next: both have
/// nothing, and the others what they had. Sequences that are longer than any may be.
template <class Run>
Status try_hostile_offsets(MovedBatch& packed, const Problem& from, const Run& run) {
  if (any_row_is_nan(from)) return {};
  const auto sequences = static_cast<std::size_t>(from.batch);
  const auto try_run = [&](const Problem& hurt, std::size_t first_nan, std::size_t last_nan,
                           const char* what) -> Status {
    packed.fault = 0;
    packed.forget();
    if (const Status ran = run(hurt); !ran.ok()) return ran;
    const std::string where = packed.difference(first_nan, last_nan);
    if (packed.fault == 1 && where.empty()) return {};
    return {StatusCode::kExecutorError, std::string(what) + " is not told: " + where};
  };
  const bool repeats = packed.problem.seq_q > from.seq_q;
  for (auto* offsets : {&packed.offsets_q, &packed.offsets_kv}) {
    const std::int32_t kept = (*offsets)[sequences];
    for (const std::int32_t wrong : {-1, (*offsets).back() + 2}) {
      (*offsets)[sequences] = wrong;
      const Status s =
          try_run(packed.problem, sequences - 1, sequences, "an offset that no tensor has");
      if (!s.ok()) return s;
    }
    (*offsets)[sequences] = kept;
  }
  // The last sequence has more rows than there are; unless it then has more than any.
  const auto last = packed.offsets_q.size() - 2;
  for (auto* offsets : {&packed.offsets_q, &packed.offsets_kv}) {
    if (repeats) break;
    offsets->back() += 2;
    const Status s = try_run(packed.problem, last, last, "rows that no tensor has");
    if (!s.ok()) return s;
    offsets->back() -= 2;
  }
  Problem longer = packed.problem;
  longer.seq_kv -= 1;
  Status s;
  if (!repeats) s = try_run(longer, 0, sequences, "more keys than any sequence has");
  if (s.ok() && !repeats && from.seq_q > 3) {
    longer = packed.problem;
    longer.seq_q -= 1;
    s = try_run(longer, 0, sequences - 1, "more queries than any sequence has");
  }
  packed.fault = 0;
  return s;
}

}  // namespace fp8_sdpa::tests
