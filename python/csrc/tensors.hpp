// PyTorch's tensors as this library's: LibTorch's stable ABI alone (PyTorch 2.10 and newer).
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa::torch_op {

using TorchTensor = torch::stable::Tensor;
using torch::headeronly::ScalarType;

/// Throws what Python's side turns into the error of that name: its message begins with
/// "ValueError: " (kInvalidArgument), "NotImplementedError: " (kUnsupported) or "RuntimeError: ".
[[noreturn]] void fail(const Status& status);
void check(const Status& status);
template <class T>
T value_of(const Result<T>& result) {
  if (!result.ok()) fail(result.status());
  return *result;
}

/// Where a tensor lies: kernels run there, on PyTorch's current stream. CPU: the host executor.
/// While it lives, the tensor's device is the current one.
class Place {
 public:
  explicit Place(const TorchTensor& tensor);
  const Device& device() const { return *device_; }
  CUstream_st* stream() const { return stream_; }
  /// Fails unless `tensor` lies there too.
  void check_holds(const TorchTensor& tensor, const char* name) const;

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  const Device* device_ = nullptr;
  CUstream_st* stream_ = nullptr;
  std::int32_t type_ = 0, index_ = 0;  // PyTorch's
};

/// Of (batch, heads, seq, head_dim); fails for another number of axes and for more than an int of
/// batches, heads or dims.
struct Sizes {
  int batch, heads;
  std::int64_t seq;
  int head_dim;
};
Sizes sizes_of(const TorchTensor& tensor, const char* name);

/// Fails for a dtype that this library does not have.
Dtype dtype_of(const TorchTensor& tensor, const char* name);

/// A view of (batch, heads, seq, head_dim), whose innermost stride is 1.
Tensor view_of(const TorchTensor& tensor, const char* name);
/// `view` is that of `tensor` where a kernel can read it as it lies, else that of a copy, which
/// `tensor` is then: its innermost stride is 1, its address and its other strides are multiples of
/// 16 bytes.
struct Readable {
  TorchTensor tensor;
  Tensor view;
};
Readable readable(TorchTensor tensor, const char* name);
/// A view of (batch, seq, heads, head_dim), or of packed sequences (total, heads, head_dim), as
/// they lie; fails if the innermost stride is not 1.
Tensor view_by_tokens(const TorchTensor& tensor, const char* name);
/// The memory of a contiguous tensor of shape `size` and of `type`, Int, Long or Float; fails for
/// another.
const void* array_of(const TorchTensor& tensor, ScalarType type,
                     std::initializer_list<std::int64_t> size, const char* name);
/// float32, contiguous, of shape `size`, from what broadcasts to it: `tensor` itself where its
/// memory is that already.
TorchTensor broadcast(TorchTensor tensor, std::initializer_list<std::int64_t> size,
                      const char* name);
/// "(2, 70, 64)".
std::string shape_of(const TorchTensor& tensor);

/// New memory beside `like`.
TorchTensor empty(const TorchTensor& like, std::initializer_list<std::int64_t> size,
                  ScalarType type);
/// (batch, heads, seq, head_dim) with heads and seq in memory as those of `like` are.
TorchTensor empty_laid_out_as(const TorchTensor& like, const Sizes& sizes, ScalarType type);

/// So many bytes for as long as it lives, beside `like`; on a GPU, for as long as the stream's work
/// of now takes.
class Workspace {
 public:
  Workspace(const TorchTensor& like, std::size_t bytes, std::size_t alignment);
  void* data() const { return data_; }

 private:
  std::optional<TorchTensor> memory_;
  void* data_ = nullptr;
};

}  // namespace fp8_sdpa::torch_op
