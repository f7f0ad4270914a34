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
  int page_size = 0;                  ///< 0: whole tensors
  std::uint64_t seed = 1;             ///< which page is where
  bool share_first_page = false;      ///< that of sequence 0 is the others' too
  bool token_major = true;  ///< a page is (page_size, heads_kv, head_dim); else head-major
  bool lse = true;
  Dtype output = Dtype::kHalf;
};

/// The memory of one batch. Rows of K and V past a sequence's length, pages that nobody has and
/// entries of the table past a sequence's last page are NaN codes and no pages: whoever reads them
/// shows it.
class Cache {
 public:
  /// Codes and scales of `data`, the first lengths[b] keys of each sequence.
  static std::unique_ptr<Cache> make(const reference::CaseData& data, const Device& device,
                                     const CacheLayout& layout);

  /// Changed by a test before it plans: nothing is checked here.
  Problem problem;
  std::vector<std::int32_t> table;  ///< (batch, max_pages); upload_table() after a change

  void upload_table();
  void upload_lengths(const std::vector<std::int32_t>& lengths);
  /// Poisons the outputs, plans, runs and fetches what was written.
  Result<reference::RunOutput> run(const Variant& variant, const PlanOptions& options = {});
  /// The same of a launch that is kept.
  Result<reference::RunOutput> run(const Launch& launch);
  std::uint32_t fault() const;
  void clear_fault();
  /// Of O and LSE, the part of one sequence.
  reference::RunOutput of_sequence(const reference::RunOutput& all, int sequence) const;

 private:
  explicit Cache(const Device& device) : device_(device) {}
  reference::Buffer* add(const void* bytes, std::size_t size, const char* name);

  Device device_;
  std::vector<std::unique_ptr<reference::Buffer>> buffers_;
  reference::Buffer *o_ = nullptr, *lse_ = nullptr, *fault_ = nullptr, *table_ = nullptr,
                    *lengths_ = nullptr;
};

/// Sequence `b` of `data` alone, with its first `keys` keys.
reference::CaseData sequence_of(const reference::CaseData& data, int b, std::int64_t keys);

}  // namespace fp8_sdpa::tests
