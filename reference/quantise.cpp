#include "reference/quantise.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "reference/fp8.hpp"
#include "reference/parallel.hpp"

namespace fp8_sdpa::reference {
namespace {

float finite_amax(std::span<const float> values) {
  float amax = 0.0F;
  for (const float value : values) {
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

/// Appends a slice's codes.
void encode(std::span<const float> values, float descale, QuantisedTensor& tensor) {
  const std::size_t begin = tensor.codes.size();
  tensor.codes.resize(begin + values.size());
  std::atomic<std::int64_t> infinities{0};
  parallel_chunks(std::ssize(values), [&](std::int64_t first, std::int64_t last) {
    std::int64_t found = 0;
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      found += std::isinf(values[i]) ? 1 : 0;
      tensor.codes[begin + i] = encode_fp8(values[i] / descale, tensor.dtype);
    }
    infinities += found;
  });
  tensor.saturated_infinities += infinities;
}

}  // namespace

QuantisedTensor quantise(const std::vector<float>& values, std::int64_t heads_total,
                         std::int64_t per_head, Dtype dtype) {
  assert(static_cast<std::int64_t>(values.size()) == heads_total * per_head);
  QuantisedTensor tensor;
  tensor.dtype = dtype;
  tensor.codes.reserve(values.size());
  tensor.descales.reserve(static_cast<std::size_t>(heads_total));
  for (std::int64_t head = 0; head < heads_total; ++head) {
    const std::span<const float> slice(values.data() + head * per_head,
                                       static_cast<std::size_t>(per_head));
    // A tiny amax may underflow here; a zero descale would turn every code into a NaN.
    const float quotient = finite_amax(slice) / max_finite(dtype);
    const float descale = quotient > 0.0F ? quotient : 1.0F;
    tensor.descales.push_back(descale);
    encode(slice, descale, tensor);
  }
  return tensor;
}

QuantisedTensor quantise_with_one_scale(const std::vector<float>& values, std::int64_t heads_total,
                                        std::int64_t per_head, Dtype dtype) {
  assert(static_cast<std::int64_t>(values.size()) == heads_total * per_head);
  static_cast<void>(per_head);
  QuantisedTensor tensor;
  tensor.dtype = dtype;
  tensor.codes.reserve(values.size());
  const float quotient = finite_amax(values) / max_finite(dtype);
  int exponent = 0;
  // quotient = significand * 2^exponent with a significand of at least a half.
  const float significand = std::frexp(quotient, &exponent);
  const float descale = std::ldexp(1.0F, significand == 0.5F ? exponent - 1 : exponent);
  tensor.descales.assign(static_cast<std::size_t>(heads_total), quotient > 0.0F ? descale : 1.0F);
  encode(values, tensor.descales.front(), tensor);
  return tensor;
}

std::vector<float> dequantise(const QuantisedTensor& tensor) {
  const auto& table = decode_table(tensor.dtype);
  std::vector<float> values(tensor.codes.size());
  const std::size_t per_head =
      tensor.descales.empty() ? 0 : tensor.codes.size() / tensor.descales.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = table[tensor.codes[i]] * tensor.descales[i / per_head];
  }
  return values;
}

std::vector<float> saturate_infinities(const std::vector<float>& values,
                                       const QuantisedTensor& tensor) {
  if (tensor.saturated_infinities == 0) return values;
  const std::vector<float> taken_for = dequantise(tensor);
  std::vector<float> result = values;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (std::isinf(result[i])) result[i] = taken_for[i];
  }
  return result;
}

}  // namespace fp8_sdpa::reference
