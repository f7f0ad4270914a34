// A case's tensors where the kernels run, and what a step's output should be.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/serving/cases.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/memory.hpp"
#include "reference/oracle/oracle.hpp"

namespace fp8_sdpa::bench {

/// Largest of some heads.
struct ServingErrors {
  double o;    ///< relative L2 of a head's rows of O
  double lse;  ///< absolute, of a row
};

/// E4M3 codes of normal values, so many that no two heads of a sequence have the same.
std::vector<std::uint8_t> draw_codes(std::uint64_t seed);

/// Codes, repeated, in pools whose pages lie in an order drawn at random, or dense,
/// (batch, heads, keys, dim) views of (batch, keys, heads, dim); bf16 O; one scale a tensor.
class Cache {
 public:
  static Result<Cache> make(const ServingCase& serving_case, const std::vector<std::uint8_t>& codes,
                            std::uint64_t seed, const Device& device);

  const Problem& problem() const { return problem_; }
  const ServingCase& serving_case() const { return case_; }

  /// Poisons O and LSE.
  Status poison() const;
  /// What is in O and LSE beside fp64 attention, some KV heads' rows.
  Result<ServingErrors> errors() const;

 private:
  using Memory = std::unique_ptr<reference::Buffer>;

  Cache(const ServingCase& serving_case, const Device& device)
      : case_(serving_case), device_(device) {}
  Result<void*> allocate(std::size_t bytes, const char* name);
  Result<void*> upload(const void* from, std::size_t bytes, const char* name);
  /// Where sequences of these lengths begin, and where the last ends.
  Status upload_offsets(const std::vector<std::int32_t>& lengths, const std::int32_t** to);
  /// Each begins elsewhere in the codes: a kernel that takes one for another shows it.
  enum Operand : std::uint8_t { kQueries, kKeys, kValues };
  static constexpr std::size_t kOperands = 3;
  /// Among the codes, that of element `at` of a tensor.
  std::size_t place_of(Operand operand, std::int64_t at) const;
  Status fill(Operand operand, std::size_t bytes, const char* name, void** data);
  Status make_keys(std::uint64_t seed);
  Status make_queries();
  /// Appends a row of head_dim values that fill() has written from element `at` of a tensor on.
  void append_row(Operand operand, std::int64_t at, std::vector<float>& to) const;
  /// Of K and V alike: where row `key` of a sequence begins, counted from the tensor's first.
  std::int64_t row_of(int sequence, std::int64_t key, int kv_head) const;

  /// Which row of Q and O a query is, of all sequences.
  std::int64_t query_of(int sequence, std::int64_t query) const;

  /// A KV head that is looked at, and attention of a sequence's queries from `first_query` on:
  /// (heads of the group, queries).
  struct Expected {
    int sequence, kv_head;
    std::int64_t first_query;
    reference::Attention attention;
  };
  Expected attend(int sequence, int kv_head) const;

  ServingCase case_;
  Device device_;
  Problem problem_;
  std::vector<std::uint8_t> codes_;  ///< which each tensor repeats
  std::vector<std::int32_t> table_;  ///< empty: dense
  std::vector<Memory> memory_;
  std::vector<Expected> expected_;
  const reference::Buffer* pattern_ = nullptr;
  const reference::Buffer* o_ = nullptr;
  const reference::Buffer* lse_ = nullptr;
};

}  // namespace fp8_sdpa::bench
