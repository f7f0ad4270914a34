#include "tensors.hpp"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

// Of the part of LibTorch that a build of PyTorch without CUDA does not have.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(
    std::int32_t device_index, void** stream);

namespace fp8_sdpa::torch_op {
namespace {

constexpr int kAxes = 4;
constexpr std::int64_t kUnit = 16;  // bytes that addresses and strides are multiples of

CUstream_st* current_stream(std::int32_t index) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr) {
    fail(unsupported("this PyTorch has no CUDA"));
  }
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(index, &stream));
  return static_cast<CUstream_st*>(stream);
}

using Axes = std::array<std::int64_t, kAxes>;

/// The first axes' strides in memory without gaps; an axis of size 0 counts as one of size 1, as
/// PyTorch counts it.
Axes strides_without_gaps(std::initializer_list<std::int64_t> size) {
  Axes strides{};
  std::int64_t stride = 1;
  for (std::size_t axis = size.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<std::int64_t>(1, size.begin()[axis]);
  }
  return strides;
}

std::int32_t device_type_of(const TorchTensor& tensor) {
  std::int32_t type;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  return type;
}

/// PyTorch's number of the dtype: scalar_type() calls a function for each dtype that it may be.
std::int32_t dtype_number(const TorchTensor& tensor) {
  std::int32_t number;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  return number;
}

/// By the C function alone: one of PyTorch's operators takes a microsecond longer.
TorchTensor empty_strided(const TorchTensor& like, std::initializer_list<std::int64_t> size,
                          const Axes& strides, ScalarType type) {
  const auto dtype = torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(type));
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(static_cast<std::int64_t>(size.size()), size.begin(), strides.data(),
                               dtype, device_type_of(like), like.get_device_index(), &made));
  return TorchTensor(made);
}

/// "(2, 70, 64)".
template <class Size>
std::string text_of(const Size& size) {
  std::string text = "(";
  for (const std::int64_t length : size) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(length);
  }
  return text + ")";
}

}  // namespace

void fail(const Status& status) {
  const char* kind = "RuntimeError: ";
  if (status.code() == StatusCode::kInvalidArgument) kind = "ValueError: ";
  if (status.code() == StatusCode::kUnsupported) kind = "NotImplementedError: ";
  throw std::runtime_error(kind + status.message());
}

void check(const Status& status) {
  if (!status.ok()) fail(status);
}

Place::Place(const TorchTensor& tensor)
    : type_(device_type_of(tensor)), index_(tensor.get_device_index()) {
  if (type_ == aoti_torch_device_type_cpu()) {
    static const Device executor = host_executor();
    device_ = &executor;
    return;
  }
  if (type_ != aoti_torch_device_type_cuda()) {
    fail(unsupported("tensors lie on a CUDA device or on the CPU"));
  }
  if (torch::stable::accelerator::getCurrentDeviceIndex() != index_) guard_.emplace(index_);
  thread_local std::map<std::int32_t, Device> known;
  const auto found = known.find(index_);
  device_ = found != known.end() ? &found->second
                                 : &known.emplace(index_, value_of(current_device())).first->second;
  stream_ = current_stream(index_);
}

void Place::check_holds(const TorchTensor& tensor, const char* name) const {
  if (device_type_of(tensor) == type_ && tensor.get_device_index() == index_) return;
  fail(invalid_argument(std::string(name) + " lies on another device than the first tensor"));
}

Sizes sizes_of(const TorchTensor& tensor, const char* name) {
  const auto size = tensor.sizes();
  if (size.size() != kAxes) {
    fail(invalid_argument(std::string(name) + " has shape " + shape_of(tensor) +
                          "; expected (batch, heads, seq, head_dim)"));
  }
  for (const int axis : {0, 1, 3}) {
    if (size[axis] <= std::numeric_limits<int>::max()) continue;
    fail(unsupported(std::string(name) + " has shape " + shape_of(tensor) +
                     "; batch, heads and head_dim are below 2^31"));
  }
  return {static_cast<int>(size[0]), static_cast<int>(size[1]), size[2], static_cast<int>(size[3])};
}

std::string shape_of(const TorchTensor& tensor) { return text_of(tensor.sizes()); }

Dtype dtype_of(const TorchTensor& tensor, const char* name) {
  static const std::array<std::pair<std::int32_t, Dtype>, 5> kDtypes = {
      {{aoti_torch_dtype_float8_e4m3fn(), Dtype::kE4M3},
       {aoti_torch_dtype_float8_e5m2(), Dtype::kE5M2},
       {aoti_torch_dtype_float16(), Dtype::kHalf},
       {aoti_torch_dtype_bfloat16(), Dtype::kBFloat16},
       {aoti_torch_dtype_float32(), Dtype::kFloat}}};
  const std::int32_t number = dtype_number(tensor);
  for (const auto& [known, dtype] : kDtypes) {
    if (known == number) return dtype;
  }
  fail(unsupported(std::string(name) +
                   " is none of float8_e4m3fn, float8_e5m2, float16, bfloat16 and float32"));
}

Tensor view_of(const TorchTensor& tensor, const char* name) {
  const auto stride = tensor.strides();
  return {const_cast<void*>(tensor.const_data_ptr()),
          dtype_of(tensor, name),
          stride[0],
          stride[1],
          stride[2],
          stride[3]};
}

Readable readable(TorchTensor tensor, const char* name) {
  const Tensor view = view_of(tensor, name);
  const std::int64_t element = size_of(view.dtype);
  const auto is_aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % kUnit == 0;
  };
  const auto size = tensor.sizes();
  bool strides = view.stride_dim == 1;
  int axis = 0;
  for (const std::int64_t stride : {view.stride_batch, view.stride_head, view.stride_seq}) {
    strides = strides && (size[axis++] == 1 || stride * element % kUnit == 0);
  }
  strides = strides && (size[2] == 1 || view.stride_seq != 0);  // TMA has no rows that are all one
  if (strides && is_aligned(view.data)) return {std::move(tensor), view};
  TorchTensor copy = torch::stable::contiguous(tensor);
  if (!is_aligned(copy.const_data_ptr())) copy = torch::stable::clone(copy);
  const Tensor of_copy = view_of(copy, name);
  return {std::move(copy), of_copy};
}

Tensor view_by_tokens(const TorchTensor& tensor, const char* name) {
  const std::int64_t axes = tensor.dim();
  if (tensor.size(axes - 1) > 1 && tensor.stride(axes - 1) != 1) {
    fail(invalid_argument(std::string(name) + "'s innermost stride is " +
                          std::to_string(tensor.stride(axes - 1)) + "; it must be 1"));
  }
  return {const_cast<void*>(tensor.const_data_ptr()),
          dtype_of(tensor, name),
          axes == kAxes ? tensor.stride(0) : 0,
          tensor.stride(axes - 2),
          tensor.stride(axes - 3),
          1};
}

const void* array_of(const TorchTensor& tensor, ScalarType type,
                     std::initializer_list<std::int64_t> size, const char* name) {
  bool fits = tensor.scalar_type() == type && tensor.is_contiguous() &&
              tensor.dim() == static_cast<std::int64_t>(size.size());
  std::int64_t axis = 0;
  for (const std::int64_t length : size) fits = fits && tensor.size(axis++) == length;
  if (fits) return tensor.const_data_ptr();
  const char* const expected = type == ScalarType::Int    ? "int32"
                               : type == ScalarType::Long ? "int64"
                                                          : "float32";
  fail(invalid_argument(std::string(name) + " must be " + expected + ", contiguous, of shape " +
                        text_of(size)));
}

TorchTensor broadcast(TorchTensor tensor, std::initializer_list<std::int64_t> size,
                      const char* name) {
  if (dtype_number(tensor) != aoti_torch_dtype_float32()) {
    fail(invalid_argument(std::string(name) + " must be float32"));
  }
  const auto has = tensor.sizes();
  bool fits = has.size() == size.size();
  bool broadcasts = has.size() <= size.size();
  for (std::size_t last = 1; last <= has.size() && broadcasts; ++last) {
    const std::int64_t length = has[has.size() - last];
    fits = fits && length == size.end()[-static_cast<std::ptrdiff_t>(last)];
    broadcasts = length == 1 || length == size.end()[-static_cast<std::ptrdiff_t>(last)];
  }
  if (fits && tensor.is_contiguous()) return tensor;
  if (!broadcasts) {
    fail(invalid_argument(std::string(name) + " has shape " + shape_of(tensor) +
                          ", which does not broadcast to " + text_of(size)));
  }
  TorchTensor made = empty(tensor, size, ScalarType::Float);
  torch::stable::copy_(made, tensor);
  return made;
}

TorchTensor empty(const TorchTensor& like, std::initializer_list<std::int64_t> size,
                  ScalarType type) {
  return empty_strided(like, size, strides_without_gaps(size), type);
}

TorchTensor empty_laid_out_as(const TorchTensor& like, const Sizes& s, ScalarType type) {
  if (like.stride(1) >= like.stride(2)) {
    return empty(like, {s.batch, s.heads, s.seq, s.head_dim}, type);
  }
  const Axes in_memory = strides_without_gaps({s.batch, s.seq, s.heads, s.head_dim});
  return empty_strided(like, {s.batch, s.heads, s.seq, s.head_dim},
                       {in_memory[0], in_memory[2], in_memory[1], in_memory[3]}, type);
}

Workspace::Workspace(const TorchTensor& like, std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return;
  memory_ = empty(like, {static_cast<std::int64_t>(bytes + alignment)}, ScalarType::Byte);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_->mutable_data_ptr());
  data_ = reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
}

}  // namespace fp8_sdpa::torch_op
