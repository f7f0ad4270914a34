// A batch of sequences as a server keeps them: lengths of their own, keys and values whole or in
// pages, on one device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference/oracle/case.hpp"
#include "tests/gates/subject.hpp"

namespace fp8_sdpa::tests {

/// How a batch lies in memory.
struct CacheLayout {
  std::vector<std::int32_t> lengths;  ///< keys of each sequence; empty: seq_kv each, and no array
  std::vector<std::int32_t> queries = {};  ///< of each, packed; empty: seq_q each
  bool packed_keys = false;                ///< instead of pages; lengths as cu_seqlens_kv
  int page_size = 0;                       ///< 0: whole tensors
  std::uint64_t seed = 1;                  ///< which page is where
  bool share_first_page = false;           ///< that of sequence 0 is the others' too
  bool token_major = true;  ///< a page is (page_size, heads_kv, head_dim); else head-major
  bool lse = true;
  Dtype output = Dtype::kHalf;
};

/// The memory of one batch. Rows of K and V past a sequence's length, pages that nobody has and
/// entries of the table past a sequence's last page are NaN codes and no pages: whoever reads them
/// shows it. Packed rows have a few that no sequence has before them and behind them.
class Cache {
 public:
  /// Codes and scales of `data`, the first lengths[b] keys of each sequence.
  static std::unique_ptr<Cache> make(const reference::CaseData& data, const Device& device,
                                     const CacheLayout& layout);

  /// Changed by a test before it plans: nothing is checked here.
  Problem problem;
  std::vector<std::int32_t> table;  ///< (batch, max_pages); upload_table() after a change

  std::vector<std::int32_t> offsets_q, offsets_kv;  ///< cu_seqlens; upload_offsets()

  void upload_table();
  void upload_lengths(const std::vector<std::int32_t>& lengths);
  void upload_offsets();
  /// Poisons the outputs, plans, runs and fetches what was written.
  Result<reference::RunOutput> run(const Variant& variant, const PlanOptions& options = {});
  /// The same of a launch that is kept.
  Result<reference::RunOutput> run(const Launch& launch);
  std::uint32_t fault() const;
  void clear_fault();
  /// Of O and LSE, the part of one sequence, (heads_q, its queries, ...), as it was made.
  reference::RunOutput of_sequence(const reference::RunOutput& all, int sequence) const;
  /// Words of O and LSE, in rows that no sequence has, that are not as they were before the run.
  std::int64_t written_elsewhere(const reference::RunOutput& all) const;

 private:
  explicit Cache(const Device& device) : device_(device) {}
  reference::Buffer* add(const void* bytes, std::size_t size, const char* name);
  void make_queries(const reference::CaseData& data, const CacheLayout& layout);
  void make_keys(const reference::CaseData& data, const CacheLayout& layout);
  const std::int32_t* add_words(const std::vector<std::int32_t>& words, const char* name,
                                reference::Buffer*& buffer);

  Device device_;
  std::vector<std::unique_ptr<reference::Buffer>> buffers_;
  reference::Buffer *o_ = nullptr, *lse_ = nullptr, *fault_ = nullptr, *table_ = nullptr,
                    *lengths_ = nullptr, *offsets_q_ = nullptr, *offsets_kv_ = nullptr;
  std::vector<std::int32_t> first_query_, queries_;  ///< as they were made
  float o_scale_ = 0.0F;

  /// Among the rows of Q and O, and among the values of LSE.
  std::size_t row_of(int sequence, int head, std::int64_t query) const;
  std::size_t lse_of(int sequence, int head, std::int64_t query) const;
};

/// Sequence `b` of `data` alone, with its first `queries` queries and `keys` keys.
reference::CaseData sequence_of(const reference::CaseData& data, int b, std::int64_t queries,
                                std::int64_t keys);

}  // namespace fp8_sdpa::tests
