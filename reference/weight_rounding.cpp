#include "reference/weight_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fp8_sdpa::reference {
namespace {

constexpr std::size_t kDepth = 32;  ///< keys of one FP8 multiply
constexpr float kLog2 = 0x1.62e43p-1F;
constexpr float kScale = 0x1p8F;  ///< of P

using PerMaximum = std::array<float, kReferenceMaxima>;

/// What turns exp(s - max) into a weight relative to each reference maximum of keys whose largest
/// score is `local`.
PerMaximum factors(float local, float max) {
  PerMaximum out{};
  for (int i = 0; i < kReferenceMaxima; ++i) {
    const float below = static_cast<float>(i) * (kLog2 / kReferenceMaxima);
    out[static_cast<std::size_t>(i)] = kScale * std::exp(std::min(below, max - local));
  }
  return out;
}

/// Floats of a vector register with AVX; two registers without it.
constexpr std::size_t kLanes = 8;
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
constexpr std::size_t kVectors = 4;
constexpr std::size_t kBlock = kVectors * kLanes;  ///< dims whose sums stay in registers

/// sums[i * dim + d] += sum over the keys of errors[key][i] * v[key * dim + d].
__attribute__((always_inline)) inline void add_products(const PerMaximum* errors, std::size_t keys,
                                                        const float* v, std::size_t dim,
                                                        float* sums) {
  for (std::size_t i = 0; i < kReferenceMaxima; ++i) {
    std::size_t first = 0;
    for (; first + kBlock <= dim; first += kBlock) {
      Vector block[kVectors] = {};
      for (std::size_t key = 0; key < keys; ++key) {
        const float error = errors[key][i];
        for (std::size_t c = 0; c < kVectors; ++c) {
          Vector values;  // one at a time: as an array it would go through memory
          __builtin_memcpy(&values, v + key * dim + first + c * kLanes, sizeof values);
          block[c] += error * values;
        }
      }
      for (std::size_t c = 0; c < kVectors; ++c) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          sums[i * dim + first + c * kLanes + lane] += block[c][lane];
        }
      }
    }
    for (; first < dim; ++first) {
      for (std::size_t key = 0; key < keys; ++key) {
        sums[i * dim + first] += errors[key][i] * v[key * dim + first];
      }
    }
  }
}

using AddProducts = void (*)(const PerMaximum*, std::size_t, const float*, std::size_t, float*);

void add_products_baseline(const PerMaximum* errors, std::size_t keys, const float* v,
                           std::size_t dim, float* sums) {
  add_products(errors, keys, v, dim, sums);
}

#if defined(__x86_64__)
// Picked by hand, as in oracle.cpp; the same sums, without fused multiply-adds.
__attribute__((target("avx2"))) void add_products_avx2(const PerMaximum* errors, std::size_t keys,
                                                       const float* v, std::size_t dim,
                                                       float* sums) {
  add_products(errors, keys, v, dim, sums);
}

AddProducts pick() {
  return __builtin_cpu_supports("avx2") ? add_products_avx2 : add_products_baseline;
}
#else
AddProducts pick() {
  return add_products_baseline;
}
#endif

/// The errors of one key's weight, relative to `max`.
PerMaximum errors_of(float weight, const PerMaximum& factor, const PerMaximum& inverse) {
  PerMaximum out;
  for (std::size_t i = 0; i < kReferenceMaxima; ++i) {
    const float scaled = weight * factor[i];
    out[i] = (round_to_e4m3(scaled) - scaled) * inverse[i];
  }
  return out;
}

}  // namespace

RoundingSquares weight_rounding(const std::vector<float>& scores, float max,
                                const std::vector<float>& v, int head_dim) {
  static const AddProducts add = pick();
  const auto dim = static_cast<std::size_t>(head_dim);
  std::vector<float> moved(kReferenceMaxima * dim);  // (maximum, dim): the error of O
  for (std::size_t first = 0; first < scores.size(); first += kDepth) {
    const std::size_t keys = std::min(kDepth, scores.size() - first);
    const float* score = &scores[first];
    const PerMaximum factor = factors(*std::max_element(score, score + keys), max);
    PerMaximum inverse;
    for (std::size_t i = 0; i < kReferenceMaxima; ++i) inverse[i] = 1.0F / factor[i];
    std::array<PerMaximum, kDepth> errors;
    for (std::size_t j = 0; j < keys; ++j) {
      errors[j] = errors_of(std::exp(score[j] - max), factor, inverse);
    }
    add(errors.data(), keys, &v[first * dim], dim, moved.data());
  }
  RoundingSquares squares{};
  for (std::size_t at = 0; at < moved.size(); ++at) {
    squares[at / dim] += static_cast<double>(moved[at]) * moved[at] / static_cast<double>(dim);
  }
  return squares;
}

}  // namespace fp8_sdpa::reference
