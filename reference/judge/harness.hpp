// The memory of one problem on one device, and running a variant on it: what check() and the tests
// that compare outputs with each other stand on.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fp8_sdpa/plan.hpp"
#include "reference/judge/check.hpp"
#include "reference/oracle/case.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::reference {

/// Where a (batch, heads, seq, dim) tensor's elements are in memory. Padding lies between rows
/// (and, head-major, between heads), never behind the last row.
struct Extent {
  std::int64_t batch = 0, heads = 0, seq = 0, dim = 0;
  bool sequence_major = false;
  std::int64_t pad = 0;  ///< elements after each row, and rows' worth after each head

  std::int64_t stride_seq() const { return (sequence_major ? heads * dim : dim) + pad; }
  std::int64_t stride_head() const {
    return sequence_major ? dim : (seq + (pad > 0 ? 1 : 0)) * stride_seq();
  }
  std::int64_t stride_batch() const {
    return sequence_major ? seq * stride_seq() : heads * stride_head();
  }
  std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return b * stride_batch() + h * stride_head() + row * stride_seq();
  }
  std::size_t contiguous_elements() const {
    return static_cast<std::size_t>(batch * heads * seq * dim);
  }
  /// From the first element to the last, padding between included.
  std::size_t elements() const {
    return static_cast<std::size_t>(offset(batch - 1, heads - 1, seq - 1) + dim);
  }
  Tensor view(void* data, Dtype dtype) const {
    return {data, dtype, stride_batch(), stride_head(), stride_seq(), 1};
  }
  /// The same memory seen as a tensor whose seq is this one's dim, and the other way round.
  Tensor transposed_view(void* data, Dtype dtype) const {
    return {data, dtype, stride_batch(), stride_head(), 1, stride_seq()};
  }

  /// Calls visit(offset in memory, offset in a contiguous tensor) for each row.
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (std::int64_t row = 0; row < batch * heads * seq; ++row) {
      visit(offset(row / (heads * seq), row / seq % heads, row % seq), row * dim);
    }
  }
  /// A contiguous tensor as it lies in memory; padding is 0xFF bytes, NaN in every format.
  template <class T>
  std::vector<T> scatter(const std::vector<T>& contiguous) const {
    std::vector<T> memory(elements());
    std::memset(memory.data(), 0xFF, memory.size() * sizeof(T));
    for_each_row([&](std::int64_t to, std::int64_t from) {
      std::memcpy(&memory[static_cast<std::size_t>(to)],
                  &contiguous[static_cast<std::size_t>(from)],
                  static_cast<std::size_t>(dim) * sizeof(T));
    });
    return memory;
  }
  template <class T>
  std::vector<T> gather(const std::vector<T>& memory) const {
    std::vector<T> contiguous(contiguous_elements());
    for_each_row([&](std::int64_t from, std::int64_t to) {
      std::memcpy(&contiguous[static_cast<std::size_t>(to)],
                  &memory[static_cast<std::size_t>(from)],
                  static_cast<std::size_t>(dim) * sizeof(T));
    });
    return contiguous;
  }
  /// The byte ranges [begin, end) of the padding.
  std::vector<ByteRange> gaps(std::size_t element_size) const;
};

/// How V of a shape lies in memory under the options; with transposed_v, (B,H,D,S) as an extent of
/// head_dim rows of seq_kv elements.
Extent value_extent(const Shape& shape, const CheckOptions& options);
/// V's view of memory laid out by value_extent().
Tensor value_view(const Extent& extent, const CheckOptions& options, void* data, Dtype dtype);

/// The dtype of V beside Q and K of `dtype`.
Dtype value_dtype(Dtype dtype, const CheckOptions& options);

/// V's elements as bytes, in `dtype`: codes, or what they stand for in 16 bits.
std::vector<std::uint8_t> value_bytes(const QuantisedTensor& v, Dtype dtype);

/// A gate that passes when nothing was counted.
GateResult count_gate(const char* name, std::int64_t count, std::string detail);

/// The format of RunOutput::o, for one of Problem::o.
constexpr Dtype format_of_bits(Dtype output) {
  return output == Dtype::kE4M3 ? Dtype::kBFloat16 : output;
}

/// Of an E4M3 output bf16 that holds a code times its scale, exactly where that is a power of two.
/// 0xFF, a NaN that no kernel writes and poison is, is 0xFFFF.
std::vector<std::uint16_t> bits_of_codes(const std::vector<std::uint8_t>& codes, float scale);

/// A power of two with which no row is saturated: 448 times it is V's largest code times its
/// largest descale, or more.
float scale_of_output(const CaseData& data);

/// What one run left behind.
struct RunOutput {
  /// Bits of O, (batch, heads_q, seq_q, head_dim) contiguous: half or bf16 as they were written; of
  /// E4M3 bits_of_codes().
  std::vector<std::uint16_t> o;
  std::vector<float> lse;  ///< (batch, heads_q, seq_q); empty if not asked for
  /// Equal bits: a NaN equals itself.
  bool operator==(const RunOutput& other) const;
};

/// The "rerun_equal" gate: the number of elements whose bits differ.
GateResult judge_rerun(const RunOutput& first, const RunOutput& second);

/// The gates of check() on what one run left behind; memory and a second run are not its business,
/// and `pass` is not set.
CaseResult judge_run(const Variant& variant, const CaseData& data, const RunOutput& output,
                     const Tolerances& tolerances, const CheckOptions& options);

/// The buffers of one case on one device, and the problem that points into them.
class Harness {
 public:
  /// Allocates, fills and binds.
  static Result<std::unique_ptr<Harness>> make(const CaseData& data, const Device& device,
                                               const CheckOptions& options);

  const Problem& problem() const { return problem_; }

  /// Poisons the outputs, runs the plan and fetches what it wrote.
  Result<RunOutput> run(const Plan& plan);

  /// The "guards" and "inputs_unchanged" gates, over all runs.
  void judge_memory(std::vector<GateResult>& gates) const;

 private:
  /// A tensor that the kernel reads, and the bytes that it must still hold afterwards.
  struct InputBuffer {
    std::unique_ptr<Buffer> buffer;
    std::vector<std::uint8_t> bytes;
    std::vector<ByteRange> gaps;
  };

  Harness(const CaseData& data, const Device& device, const CheckOptions& options);
  Status set_up(const CaseData& data, const CheckOptions& options);
  template <class T>
  Status add_input(const std::vector<T>& values, const char* name, std::vector<ByteRange> gaps);
  void bind(const CaseData& data, const CheckOptions& options);
  /// RunOutput::o of O's memory.
  std::vector<std::uint16_t> bits_of_output(const std::vector<std::uint8_t>& memory) const;
  /// Looks at guard bands, padding and inputs after a run.
  Status inspect(const std::vector<std::uint8_t>& o_memory);
  /// Closes or opens the padding to the kernel, where a sanitizer can tell.
  void close_padding(bool close);

  Device device_;
  Extent q_;
  Extent kv_;  ///< K
  Extent v_;
  std::vector<InputBuffer> inputs_;  ///< Q, K, V, their descales, O's scale
  float o_scale_ = 0.0F;
  std::unique_ptr<Buffer> o_;
  std::unique_ptr<Buffer> lse_;
  std::unique_ptr<Buffer> workspace_;
  Problem problem_;
  std::map<std::string, std::int64_t> guard_bytes_;  ///< changed, by buffer
  std::set<std::string> changed_inputs_;
};

/// Runs a variant once on the codes and descales of `data`, whose references are not looked at, and
/// fails if memory around the tensors or an input changed.
Result<RunOutput> run_variant(const Variant& variant, const CaseData& data, const Device& device,
                              const CheckOptions& options = {});

}  // namespace fp8_sdpa::reference
