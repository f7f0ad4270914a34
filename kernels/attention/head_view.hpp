// One (batch, head) of a tensor, as kernels see it: a pointer to its first row and the stride
// between rows.
#pragma once

#include <cstdint>

#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// Strides of a tensor, in elements; the dim stride is 1. 64 bits: tensors past 2^31 elements are
/// served.
struct Strides {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t seq;
};

/// As kernels see them: the stride of an axis of size 1, which a problem need not state, is 0, so
/// that rows past the end have addresses as aligned as the first row's.
inline Strides strides_of(const Tensor& tensor, int batch, int heads, std::int64_t seq) {
  return {batch > 1 ? tensor.stride_batch : 0, heads > 1 ? tensor.stride_head : 0,
          seq > 1 ? tensor.stride_seq : 0};
}

/// Those of O, in words of 16 bits (output.hpp).
inline Strides strides_of_output(const Tensor& o, int batch, int heads, std::int64_t seq) {
  const Strides elements = strides_of(o, batch, heads, seq);
  const int of_word = o.dtype == Dtype::kE4M3 ? 2 : 1;
  return {elements.batch / of_word, elements.head / of_word, elements.seq / of_word};
}

/// Where row `seq` of (batch, head) begins.
template <class T>
GPU_FN T* row_pointer(T* base, const Strides& strides, int batch, int head, std::int64_t seq) {
  return base + batch * strides.batch + head * strides.head + seq * strides.seq;
}

}  // namespace fp8_sdpa::attention
