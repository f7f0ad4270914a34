#include "dispatch/check_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace fp8_sdpa::detail {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes: one vector load, one cp.async, one TMA row
constexpr int kMaxHeadDim = 256;

enum class Role { kQuery, kKey, kValue, kOutput };

struct View {
  const char* name;
  const Tensor* tensor;
  Role role;
  std::array<std::int64_t, 4> sizes;  // batch, head, seq, dim

  std::array<std::int64_t, 4> strides() const {
    return {tensor->stride_batch, tensor->stride_head, tensor->stride_seq, tensor->stride_dim};
  }
};
constexpr std::array<const char*, 4> kStrideNames = {"stride_batch", "stride_head", "stride_seq",
                                                     "stride_dim"};

std::string field(const View& view, const char* member) {
  return std::string(view.name) + "." + member;
}

Status check_sizes(const Problem& p) {
  struct Size {
    const char* name;
    std::int64_t value;
  };
  for (const Size& size :
       {Size{"batch", p.batch}, Size{"heads_q", p.heads_q}, Size{"heads_kv", p.heads_kv},
        Size{"seq_q", p.seq_q}, Size{"seq_kv", p.seq_kv}, Size{"head_dim", p.head_dim}}) {
    if (size.value < 1) {
      return invalid_argument(std::string(size.name) + " is " + std::to_string(size.value) +
                              "; it must be at least 1");
    }
  }
  if (p.heads_q % p.heads_kv != 0) {
    return invalid_argument("heads_q is " + std::to_string(p.heads_q) +
                            "; it must be a multiple of heads_kv, " + std::to_string(p.heads_kv));
  }
  if (p.head_dim > kMaxHeadDim) {
    return invalid_argument("head_dim is " + std::to_string(p.head_dim) + "; at most " +
                            std::to_string(kMaxHeadDim) + " is served");
  }
  // Sizes below this bound cannot overflow any product of strides that fits a real allocation.
  constexpr std::int64_t kMaxSeq = std::int64_t{1} << 40;
  if (p.seq_q > kMaxSeq || p.seq_kv > kMaxSeq) {
    return invalid_argument("seq_q and seq_kv are " + std::to_string(p.seq_q) + " and " +
                            std::to_string(p.seq_kv) + "; at most 2^40 is possible");
  }
  if (!(p.softmax_scale >= 0.0F) || !std::isfinite(p.softmax_scale)) {
    return invalid_argument("softmax_scale is " + std::to_string(p.softmax_scale) +
                            "; it must be positive and finite, or 0 for 1 / sqrt(head_dim)");
  }
  return {};
}

Status check_dtype(const View& view) {
  const Dtype dtype = view.tensor->dtype;
  const bool known = dtype <= Dtype::kBFloat16;
  const bool want_fp8 = view.role != Role::kOutput;
  if (known && is_fp8(dtype) == want_fp8) return {};
  return invalid_argument(field(view, "dtype") + " is " + name_of(dtype) + "; it must be " +
                          (want_fp8 ? "e4m3 or e5m2" : "half or bf16"));
}

Status check_strides(const View& view) {
  const auto strides = view.strides();
  const bool transposed =
      view.role == Role::kValue && view.tensor->stride_seq == 1 && view.tensor->stride_dim != 1;
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
    const std::int64_t multiple = kAlignment / size_of(view.tensor->dtype);
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

// The output's elements must be distinct: two rows at one address would be a race.
Status check_output_is_dense(const View& view) {
  struct Axis {
    std::int64_t stride, size;
    const char* name;
  };
  std::array<Axis, 4> axes{};
  const auto strides = view.strides();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i] = {strides[i], view.sizes[i], kStrideNames[i]};
  }
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

struct Range {
  std::uintptr_t begin, end;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range bytes_of(const View& view) {
  const auto strides = view.strides();
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    if (view.sizes[axis] > 1) last += strides[axis] * (view.sizes[axis] - 1);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(view.tensor->data);
  return {begin, begin + static_cast<std::uintptr_t>((last + 1) * size_of(view.tensor->dtype))};
}

Status check_pointer(const std::string& name, const void* pointer, std::uintptr_t alignment) {
  if (pointer == nullptr) return invalid_argument(name + " is null");
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    return invalid_argument(name + " is not aligned to " + std::to_string(alignment) + " bytes");
  }
  return {};
}

Status check_view(const View& view) {
  if (Status s = check_pointer(field(view, "data"), view.tensor->data, kAlignment); !s.ok()) {
    return s;
  }
  if (Status s = check_dtype(view); !s.ok()) return s;
  return check_strides(view);
}

/// `count` floats from `first` on. Unsigned: sizes that no memory has may wrap, not overflow.
Range floats_of(const float* first, std::uintptr_t count) {
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  return {begin, begin + sizeof(float) * count};
}

struct NamedRange {
  const char* name;
  Range range;
};

// What is written shares no byte with anything else.
Status check_overlap(const Problem& p, const View& output, const std::array<View, 3>& inputs) {
  const auto size = [](std::int64_t value) { return static_cast<std::uintptr_t>(value); };
  const std::uintptr_t q_heads = size(p.batch) * size(p.heads_q);
  const std::uintptr_t kv_heads = size(p.batch) * size(p.heads_kv);
  const std::array<NamedRange, 6> read = {{{"q", bytes_of(inputs[0])},
                                           {"k", bytes_of(inputs[1])},
                                           {"v", bytes_of(inputs[2])},
                                           {"descales.q", floats_of(p.descales.q, q_heads)},
                                           {"descales.k", floats_of(p.descales.k, kv_heads)},
                                           {"descales.v", floats_of(p.descales.v, kv_heads)}}};
  const Range o = bytes_of(output);
  for (const NamedRange& input : read) {
    if (o.overlaps(input.range)) {
      return invalid_argument(std::string("o overlaps ") + input.name +
                              "; the output needs memory of its own");
    }
  }
  if (p.lse == nullptr) return {};
  const Range lse = floats_of(p.lse, q_heads * size(p.seq_q));
  if (lse.overlaps(o)) {
    return invalid_argument("lse overlaps o; it needs memory of its own");
  }
  for (const NamedRange& input : read) {
    if (lse.overlaps(input.range)) {
      return invalid_argument(std::string("lse overlaps ") + input.name +
                              "; it needs memory of its own");
    }
  }
  return {};
}

}  // namespace

Status check_problem(const Problem& p) {
  if (Status s = check_sizes(p); !s.ok()) return s;
  const View output{"o", &p.o, Role::kOutput, {p.batch, p.heads_q, p.seq_q, p.head_dim}};
  const std::array<View, 3> inputs = {{
      {"q", &p.q, Role::kQuery, {p.batch, p.heads_q, p.seq_q, p.head_dim}},
      {"k", &p.k, Role::kKey, {p.batch, p.heads_kv, p.seq_kv, p.head_dim}},
      {"v", &p.v, Role::kValue, {p.batch, p.heads_kv, p.seq_kv, p.head_dim}},
  }};
  for (const View& input : inputs) {
    if (Status s = check_view(input); !s.ok()) return s;
  }
  if (Status s = check_view(output); !s.ok()) return s;
  if (Status s = check_output_is_dense(output); !s.ok()) return s;
  constexpr std::uintptr_t kFloatAlignment = alignof(float);
  for (const auto& [name, pointer] :
       {std::pair{"descales.q", p.descales.q}, std::pair{"descales.k", p.descales.k},
        std::pair{"descales.v", p.descales.v}}) {
    if (Status s = check_pointer(name, pointer, kFloatAlignment); !s.ok()) return s;
  }
  if (p.lse != nullptr) {
    if (Status s = check_pointer("lse", p.lse, kFloatAlignment); !s.ok()) return s;
  }
  if (p.lse_sum != LseSum::kDenominator && p.lse_sum != LseSum::kExact) {
    return invalid_argument("lse_sum is " + std::to_string(static_cast<int>(p.lse_sum)) +
                            "; it must be the denominator or exact");
  }
  if (p.mask != Mask::kNone && p.mask != Mask::kCausal) {
    return invalid_argument("mask is " + std::to_string(static_cast<int>(p.mask)) +
                            "; it must be none or causal");
  }
  return check_overlap(p, output, inputs);
}

}  // namespace fp8_sdpa::detail
