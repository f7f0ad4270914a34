#include "dispatch/check_tensor.hpp"

#include <algorithm>
#include <limits>

namespace fp8_sdpa::detail {
namespace {

constexpr std::array<const char*, 4> kStrideNames = {"stride_batch", "stride_head", "stride_seq",
                                                     "stride_dim"};

Range range_of(const void* first, std::uintptr_t count, std::uintptr_t size) {
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  constexpr std::uintptr_t kEnd = std::numeric_limits<std::uintptr_t>::max();
  return {begin, count > (kEnd - begin) / size ? kEnd : begin + count * size};
}

}  // namespace

std::string field(const View& view, const char* member) {
  return std::string(view.name) + "." + member;
}

Status check_sizes(std::initializer_list<Size> sizes) {
  for (const Size& size : sizes) {
    if (size.value >= 1) continue;
    return invalid_argument(std::string(size.name) + " is " + std::to_string(size.value) +
                            "; it must be at least 1");
  }
  return {};
}

Status check_strides(const View& view) {
  const auto strides = view.strides();
  const bool transposed =
      view.may_be_transposed && view.tensor->stride_seq == 1 && view.tensor->stride_dim != 1;
  const std::size_t unit = transposed ? 2 : 3;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    const std::int64_t stride = strides[axis];
    if (axis == unit) {
      if (stride == 1) continue;
      return invalid_argument(field(view, kStrideNames[axis]) + " is " + std::to_string(stride) +
                              "; head_dim must be contiguous (stride 1; a transposed v has "
                              "stride_seq 1 instead)");
    }
    if (view.sizes[axis] == 1) continue;  // never used
    const std::int64_t multiple = std::int64_t{kTensorAlignment} / size_of(view.tensor->dtype);
    if (stride < 0 || stride % multiple != 0) {
      return invalid_argument(field(view, kStrideNames[axis]) + " is " + std::to_string(stride) +
                              " elements; it must be a non-negative multiple of 16 bytes (" +
                              std::to_string(multiple) + " elements)");
    }
    if (stride > std::numeric_limits<std::int64_t>::max() / 8 / view.sizes[axis]) {
      return invalid_argument(field(view, kStrideNames[axis]) + " is " + std::to_string(stride) +
                              " elements; the tensor's extent does not fit 64 bits");
    }
  }
  return {};
}

Status check_output_is_dense(const View& view, std::int64_t twin) {
  struct Axis {
    std::int64_t stride, size;
    const char* name;
  };
  std::array<Axis, 5> axes{};
  const auto strides = view.strides();
  for (std::size_t i = 0; i < strides.size(); ++i) {
    axes[i] = {strides[i], view.sizes[i], kStrideNames[i]};
  }
  axes.back() = {twin, twin == 0 ? 1 : 2, "data"};
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  std::int64_t extent = 1;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    if (axis.stride < extent) {
      return invalid_argument(field(view, axis.name) + " is " + std::to_string(axis.stride) +
                              "; output rows would overlap (at least " + std::to_string(extent) +
                              " is needed)");
    }
    extent = axis.stride * (axis.size - 1) + extent;
  }
  return {};
}

Range bytes_of(const View& view) {
  const auto strides = view.strides();
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    if (view.sizes[axis] > 1) last += strides[axis] * (view.sizes[axis] - 1);
  }
  const auto elements = static_cast<std::uintptr_t>(last + 1);
  return range_of(view.tensor->data, elements, size_of(view.tensor->dtype));
}

Status check_pointer(const char* name, const void* pointer, std::uintptr_t alignment) {
  if (pointer == nullptr) return invalid_argument(std::string(name) + " is null");
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    return invalid_argument(std::string(name) + " is not aligned to " + std::to_string(alignment) +
                            " bytes");
  }
  return {};
}

Status check_data(const View& view) {
  const Status status = check_pointer("data", view.tensor->data, kTensorAlignment);
  if (status.ok()) return status;
  return {status.code(), std::string(view.name) + "." + status.message()};
}

Status check_apart(std::span<const NamedRange> written, std::span<const NamedRange> read) {
  for (std::size_t i = 0; i < written.size(); ++i) {
    for (const auto others : {written.first(i), read}) {
      for (const NamedRange& other : others) {
        if (!written[i].range.overlaps(other.range)) continue;
        return invalid_argument(std::string(written[i].name) + " overlaps " + other.name +
                                "; it needs memory of its own");
      }
    }
  }
  return {};
}

Range words_of(const void* first, std::uintptr_t count) {
  return range_of(first, count, sizeof(std::uint32_t));
}

}  // namespace fp8_sdpa::detail
