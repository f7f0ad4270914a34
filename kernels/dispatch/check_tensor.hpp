// What every tensor is asked, of a problem or of what is quantised: by its description alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::detail {

inline constexpr std::uintptr_t kTensorAlignment = 16;  ///< bytes: a vector load, a row of TMA

/// A tensor under its name.
struct View {
  const char* name;
  const Tensor* tensor;
  std::array<std::int64_t, 4> sizes;  ///< batch, head, seq, dim
  bool may_be_transposed = false;     ///< stride_seq 1 in place of stride_dim 1

  std::array<std::int64_t, 4> strides() const {
    return {tensor->stride_batch, tensor->stride_head, tensor->stride_seq, tensor->stride_dim};
  }
};

/// "q.dtype".
std::string field(const View& view, const char* member);

/// A count under its name.
struct Size {
  const char* name;
  std::int64_t value;
};
/// kInvalidArgument for one below 1.
Status check_sizes(std::initializer_list<Size> sizes);

/// kInvalidArgument where it is null or not aligned.
Status check_pointer(const char* name, const void* pointer, std::uintptr_t alignment);
/// The same of where a tensor lies.
Status check_data(const View& view);

/// kInvalidArgument for a stride that Tensor does not allow.
Status check_strides(const View& view);

/// The output's elements must be distinct: two rows at one address would be a race. With `twin`, so
/// must those of it and of another of its strides, so many elements away.
Status check_output_is_dense(const View& view, std::int64_t twin = 0);

/// Bytes of memory.
struct Range {
  std::uintptr_t begin, end;
  bool overlaps(const Range& other) const {
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
};
struct NamedRange {
  const char* name;
  Range range;
};

/// Of a tensor's first element to its last. @pre check_strides()
Range bytes_of(const View& view);

/// kInvalidArgument where something that is written shares a byte with anything else.
Status check_apart(std::span<const NamedRange> written, std::span<const NamedRange> read);

/// `count` words of 4 bytes from `first` on; more than memory has end with it.
Range words_of(const void* first, std::uintptr_t count);

}  // namespace fp8_sdpa::detail
