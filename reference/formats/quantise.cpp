#include "reference/formats/quantise.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "reference/formats/fp8.hpp"
#include "reference/formats/parallel.hpp"

namespace fp8_sdpa::reference {
namespace {

float finite_amax(std::span<const float> values, bool keeps_nan) {
  float amax = 0.0F;
  for (const float value : values) {
    if (keeps_nan && std::isnan(value)) return value;
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

/// The element behind the last one that shares a descale with `element`.
std::size_t end_of_part(const QuantisedTensor& tensor, std::size_t per_head, std::size_t element) {
  const std::size_t head_end = (element / per_head + 1) * per_head;
  if (tensor.per_block == 0) return head_end;
  const auto per_block = static_cast<std::size_t>(tensor.per_block);
  return std::min(head_end, element + per_block - element % per_head % per_block);
}

/// finite_amax() of each of the tensor's heads, or of their blocks.
std::vector<float> amax_of_parts(const std::vector<float>& values, std::int64_t heads_total,
                                 std::int64_t per_head, const QuantisedTensor& tensor) {
  const auto size = static_cast<std::size_t>(per_head);
  const auto parts = static_cast<std::size_t>(tensor.blocks());
  std::vector<float> amax(static_cast<std::size_t>(heads_total) * parts);
  const auto look = [&](std::int64_t head) {
    const auto at = static_cast<std::size_t>(head);
    for (std::size_t part = 0, first = at * size; part < parts; ++part) {
      const std::size_t end = end_of_part(tensor, size, first);
      amax[at * parts + part] =
          finite_amax(std::span(values).subspan(first, end - first), tensor.dtype == Dtype::kInt8);
      first = end;
    }
  };
  if (std::ssize(values) > kParallelChunk) {
    parallel_for(heads_total, look);
  } else {
    for (std::int64_t head = 0; head < heads_total; ++head) look(head);
  }
  return amax;
}

/// The codes of `values`, by the descales that are there.
void encode(const std::vector<float>& values, std::int64_t per_head, QuantisedTensor& tensor) {
  tensor.codes.resize(values.size());
  std::atomic<std::int64_t> infinities{0};
  parallel_chunks(std::ssize(values), [&](std::int64_t from, std::int64_t to) {
    const auto last = static_cast<std::size_t>(to);
    std::int64_t found = 0;
    for (auto i = static_cast<std::size_t>(from); i < last;) {
      const float descale = tensor.descales[tensor.descale_of(i)];
      const std::size_t end =
          std::min(last, end_of_part(tensor, static_cast<std::size_t>(per_head), i));
      for (; i < end; ++i) {
        found += std::isinf(values[i]) ? 1 : 0;
        tensor.codes[i] = encode_code(values[i] / descale, tensor.dtype);
      }
    }
    infinities += found;
  });
  tensor.saturated_infinities = infinities;
}

}  // namespace

QuantisedTensor quantise(const std::vector<float>& values, std::int64_t heads_total,
                         std::int64_t per_head, Dtype dtype, std::int64_t per_block) {
  assert(static_cast<std::int64_t>(values.size()) == heads_total * per_head);
  QuantisedTensor tensor;
  tensor.dtype = dtype;
  if (per_block > 0) {
    tensor.per_block = per_block;
    tensor.per_head = per_head;
  }
  for (const float amax : amax_of_parts(values, heads_total, per_head, tensor)) {
    // Of smaller ones, some values that round to a code are subnormal, which devices flush.
    constexpr float kLeast = 0x1p-100F;
    const float quotient = amax / max_finite(dtype);
    tensor.descales.push_back(quotient < kLeast ? 1.0F : quotient);
  }
  encode(values, per_head, tensor);
  return tensor;
}

QuantisedTensor quantise_with_one_scale(const std::vector<float>& values, std::int64_t heads_total,
                                        std::int64_t per_head, Dtype dtype) {
  assert(static_cast<std::int64_t>(values.size()) == heads_total * per_head);
  QuantisedTensor tensor;
  tensor.dtype = dtype;
  const auto amax = amax_of_parts(values, heads_total, per_head, tensor);
  const float quotient = *std::max_element(amax.begin(), amax.end()) / max_finite(dtype);
  int exponent = 0;
  // quotient = significand * 2^exponent with a significand of at least a half.
  const float significand = std::frexp(quotient, &exponent);
  const float descale = std::ldexp(1.0F, significand == 0.5F ? exponent - 1 : exponent);
  tensor.descales.assign(static_cast<std::size_t>(heads_total), quotient > 0.0F ? descale : 1.0F);
  encode(values, per_head, tensor);
  return tensor;
}

std::vector<double> rotate(const std::vector<double>& values, int head_dim, std::uint64_t seed) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const auto sign = [seed](std::size_t column) {
    // splitmix64, as Vigna's public-domain reference has it.
    std::uint64_t z = seed + column / 64 + 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
    return (z >> (column % 64) & 1) != 0 ? -1.0 : 1.0;
  };
  std::vector<double> matrix(dim * dim);  // (from, to)
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const double entry = std::popcount(i / dim & i % dim) % 2 != 0 ? -1.0 : 1.0;
    matrix[i] = sign(i / dim) * entry / std::sqrt(static_cast<double>(dim));
  }
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    double* const row = &result[i / dim * dim];
    const double* const entries = &matrix[i % dim * dim];
    for (std::size_t to = 0; to < dim; ++to) row[to] += values[i] * entries[to];
  }
  return result;
}

std::vector<double> means(const std::vector<double>& values, std::int64_t heads_total,
                          int head_dim) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::size_t per_head = values.size() / static_cast<std::size_t>(heads_total);
  std::vector<double> sums(static_cast<std::size_t>(heads_total) * dim);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) sums[i / per_head * dim + i % dim] += values[i];
  }
  for (double& sum : sums) sum /= static_cast<double>(per_head / dim);
  return sums;
}

std::vector<float> transformed(const std::vector<float>& values, std::int64_t heads_total,
                               int head_dim, bool rotated, bool smoothed, std::uint64_t seed) {
  if (!rotated && !smoothed) return values;
  std::vector<double> made(values.begin(), values.end());
  if (rotated) made = rotate(made, head_dim, seed);
  if (smoothed) {
    const auto per_head = values.size() / static_cast<std::size_t>(heads_total);
    const std::vector<double> mean = means(made, heads_total, head_dim);
    const auto dim = static_cast<std::size_t>(head_dim);
    for (std::size_t i = 0; i < values.size(); ++i) made[i] -= mean[i / per_head * dim + i % dim];
  }
  return {made.begin(), made.end()};
}

std::vector<float> quantised(const std::vector<float>& values, std::int64_t heads_total,
                             int head_dim, bool rotated, bool smoothed, std::uint64_t seed,
                             int block_rows) {
  return dequantise(quantise(transformed(values, heads_total, head_dim, rotated, smoothed, seed),
                             heads_total, static_cast<std::int64_t>(values.size()) / heads_total,
                             Dtype::kE4M3, std::int64_t{block_rows} * head_dim));
}

QuantisedTensor in_blocks(QuantisedTensor tensor, std::int64_t per_block) {
  assert(tensor.per_block == 0);
  const std::vector<float> of_heads = std::move(tensor.descales);
  tensor.per_head = std::ssize(tensor.codes) / std::ssize(of_heads);
  tensor.per_block = per_block;
  tensor.descales.clear();
  for (const float descale : of_heads) {
    tensor.descales.insert(tensor.descales.end(), static_cast<std::size_t>(tensor.blocks()),
                           descale);
  }
  return tensor;
}

std::vector<float> dequantise(const QuantisedTensor& tensor) {
  const auto& table = decode_table(tensor.dtype);
  std::vector<float> values(tensor.codes.size());
  parallel_chunks(std::ssize(values), [&](std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      values[i] = table[tensor.codes[i]] * tensor.descales[tensor.descale_of(i)];
    }
  });
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
