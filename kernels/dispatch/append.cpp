#include "fp8_sdpa/append.hpp"

#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "dispatch/check_tensor.hpp"
#include "dispatch/compiled_archs.hpp"
#include "quantise/params.hpp"

namespace fp8_sdpa {
namespace {

using detail::NamedRange;
using detail::View;

std::string is(const char* name, std::int64_t value) {
  return std::string(name) + " is " + std::to_string(value);
}

Status check_shape(const Append& a) {
  if (Status s = detail::check_sizes({{"tokens", a.tokens},
                                      {"heads", a.heads},
                                      {"pages", a.pages},
                                      {"page_size", a.page_size}});
      !s.ok()) {
    return s;
  }
  constexpr int kMultiple = 16;
  if (a.head_dim < kMultiple || a.head_dim > quantiser::kMaxHeadDim ||
      a.head_dim % kMultiple != 0) {
    return unsupported(is("head_dim", a.head_dim) + "; multiples of 16 up to 256 are served");
  }
  constexpr int kMostHeads = 1 << 20;
  if (std::int64_t{a.pages} * a.page_size > INT_MAX) {
    return unsupported("pages * page_size is " + std::to_string(a.pages) + " * " +
                       std::to_string(a.page_size) + "; below 2^31 is served");
  }
  if (a.heads > kMostHeads) return unsupported(is("heads", a.heads) + "; at most 2^20 is served");
  return {};
}

Status check_rotary(const Append& a) {
  const Rotary& rotary = a.rotary;
  if (rotary.cos_sin == nullptr) {
    if (rotary.positions == nullptr && rotary.max_positions == 0 && rotary.dim == 0) return {};
    return invalid_argument(
        "rotary.cos_sin is null, but rotary.positions, max_positions or dim is given");
  }
  constexpr int kMultiple = 16;
  if (rotary.dim < kMultiple || rotary.dim > a.head_dim || rotary.dim % kMultiple != 0) {
    return invalid_argument(is("rotary.dim", rotary.dim) +
                            "; it must be a multiple of 16 up to head_dim, " +
                            std::to_string(a.head_dim));
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (rotary.max_positions < 1 || rotary.max_positions > kMost) {
    return invalid_argument(is("rotary.max_positions", rotary.max_positions) +
                            "; it must be 1 to 2^40");
  }
  return {};
}

Status check_dtypes(const Append& a) {
  const Dtype from = a.k.dtype;
  if (from != Dtype::kBFloat16 && from != Dtype::kHalf && from != Dtype::kFloat) {
    return invalid_argument(std::string("k.dtype is ") + name_of(from) +
                            "; it must be bf16, half or float");
  }
  const Dtype to = a.k_cache.dtype;
  if (to != Dtype::kE4M3 && to != Dtype::kE5M2) {
    return invalid_argument(std::string("k_cache.dtype is ") + name_of(to) +
                            "; it must be e4m3 or e5m2");
  }
  const auto differ = [](const char* name, Dtype of_v, Dtype of_k) {
    return invalid_argument("v" + std::string(name) + ".dtype is " + name_of(of_v) +
                            "; it must be that of k" + name + ", " + name_of(of_k));
  };
  if (a.v.dtype != from) return differ("", a.v.dtype, from);
  if (a.v_cache.dtype != to) return differ("_cache", a.v_cache.dtype, to);
  return {};
}

bool have_equal_strides(const View& a, const View& b) {
  for (std::size_t axis = 0; axis < a.sizes.size(); ++axis) {
    if (a.sizes[axis] > 1 && a.strides()[axis] != b.strides()[axis]) return false;
  }
  return true;
}

/// Each apart from the other, or two halves of one tensor.
Status check_caches(const View& k, const View& v) {
  for (const View& view : {k, v}) {
    if (Status s = detail::check_output_is_dense(view); !s.ok()) return s;
  }
  if (!detail::bytes_of(k).overlaps(detail::bytes_of(v))) return {};
  const auto distance = static_cast<const std::uint8_t*>(v.tensor->data) -
                        static_cast<const std::uint8_t*>(k.tensor->data);
  const bool halves = distance != 0 && have_equal_strides(k, v) &&
                      detail::check_output_is_dense(k, std::abs(distance)).ok();
  if (halves) return {};
  return invalid_argument(
      "v_cache overlaps k_cache; it needs memory of its own, or its strides and the places between "
      "its rows, heads or pages");
}

Status check_memory(const Append& a) {
  const std::array<std::int64_t, 4> new_sizes = {1, a.heads, a.tokens, a.head_dim};
  const std::array<std::int64_t, 4> cache_sizes = {a.pages, a.heads, a.page_size, a.head_dim};
  const std::array<View, 4> views = {{{"k", &a.k, new_sizes},
                                      {"v", &a.v, new_sizes},
                                      {"k_cache", &a.k_cache, cache_sizes},
                                      {"v_cache", &a.v_cache, cache_sizes}}};
  for (const View& view : views) {
    if (Status s = detail::check_data(view); !s.ok()) return s;
    if (Status s = detail::check_strides(view); !s.ok()) return s;
  }
  if (Status s = check_caches(views[2], views[3]); !s.ok()) return s;

  const bool rotates = a.rotary.cos_sin != nullptr;
  struct Array {
    const char* name;
    const void* data;
    std::uintptr_t alignment, words;
    bool is_needed = true;
  };
  const auto count = [](std::int64_t value) { return static_cast<std::uintptr_t>(value); };
  const std::array<Array, 6> arrays = {
      {{"slots", a.slots, alignof(std::int64_t), 2 * count(a.tokens)},
       {"descale_k", a.descale_k, alignof(float), count(a.heads)},
       {"descale_v", a.descale_v, alignof(float), count(a.heads)},
       {"rotary.cos_sin", a.rotary.cos_sin, detail::kTensorAlignment,
        count(a.rotary.max_positions) * count(a.rotary.dim), rotates},
       {"rotary.positions", a.rotary.positions, alignof(std::int64_t), 2 * count(a.tokens),
        rotates},
       {"fault", a.fault, alignof(std::uint32_t), 1, a.fault != nullptr}}};
  std::array<NamedRange, 8> ranges{};
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array& array = arrays[i];
    ranges[i] = {array.name, detail::words_of(array.data, array.is_needed ? array.words : 0)};
    if (!array.is_needed) continue;
    if (Status s = detail::check_pointer(array.name, array.data, array.alignment); !s.ok())
      return s;
  }
  const NamedRange fault = ranges[5];
  ranges[5] = {"k", detail::bytes_of(views[0])};
  ranges[6] = {"v", detail::bytes_of(views[1])};
  const std::array<NamedRange, 2> of_k = {{{"k_cache", detail::bytes_of(views[2])}, fault}};
  const std::array<NamedRange, 2> of_v = {{{"v_cache", detail::bytes_of(views[3])}, fault}};
  const auto read = std::span(ranges).first(7);
  if (Status s = detail::check_apart(of_k, read); !s.ok()) return s;
  return detail::check_apart(of_v, read);
}

}  // namespace

Result<AppendPlan> plan(const Append& append, const Device& device) {
  if (Status s = check_shape(append); !s.ok()) return s;
  if (Status s = check_rotary(append); !s.ok()) return s;
  if (Status s = check_dtypes(append); !s.ok()) return s;
  if (Status s = check_memory(append); !s.ok()) return s;
  if (Status s = detail::check_has_code("append", quantiser::kMinSmVersion, device); !s.ok()) {
    return s;
  }
  AppendPlan result;
  result.append_ = append;
  result.device_ = device;
  return result;
}

Status append(const AppendPlan& plan, CUstream_st* stream) {
  const gpu::Queue queue{stream, plan.device().executor.get()};
  return detail::on_backend_of(plan.device(), [&]<Backend kBackend>() {
    return quantiser::append<kBackend>(plan.what(), queue);
  });
}

}  // namespace fp8_sdpa
