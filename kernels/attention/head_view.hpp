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

inline Strides strides_of(const Tensor& tensor) {
  return {tensor.stride_batch, tensor.stride_head, tensor.stride_seq};
}

/// Where row `seq` of (batch, head) begins.
template <class T>
GPU_FN T* row_pointer(T* base, const Strides& strides, int batch, int head, std::int64_t seq) {
  return base + batch * strides.batch + head * strides.head + seq * strides.seq;
}

}  // namespace fp8_sdpa::attention
