#include "reference/oracle/weight_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

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

/// sums[i * dim + d] += sum over the keys of errors[key][i] * v[key * dim + d].
template <int kLanes>
__attribute__((always_inline)) inline void add_errors(const PerMaximum* errors, std::size_t keys,
                                                      const float* v, std::size_t dim,
                                                      float* sums) {
  using Vector = typename VectorOf<float, kLanes>::Type;
  constexpr std::size_t kVectors = 4;
  constexpr std::size_t kBlock = kVectors * kLanes;  // dims whose sums stay in registers,
  constexpr std::size_t kMaxima = 2;                 // for so many maxima
  static_assert(kReferenceMaxima % kMaxima == 0);
  for (std::size_t i = 0; i < kReferenceMaxima; i += kMaxima) {
    std::size_t first = 0;
    for (; first + kBlock <= dim; first += kBlock) {
      Vector block[kMaxima][kVectors] = {};
      for (std::size_t key = 0; key < keys; ++key) {
        for (std::size_t c = 0; c < kVectors; ++c) {
          Vector values;  // one at a time: as an array it would go through memory
          __builtin_memcpy(&values, v + key * dim + first + c * kLanes, sizeof values);
          for (std::size_t m = 0; m < kMaxima; ++m) block[m][c] += errors[key][i + m] * values;
        }
      }
      for (std::size_t m = 0; m < kMaxima; ++m) {
        for (std::size_t c = 0; c < kVectors; ++c) {
          float* const to = sums + (i + m) * dim + first + c * kLanes;
          Vector sum;
          __builtin_memcpy(&sum, to, sizeof sum);
          sum += block[m][c];
          __builtin_memcpy(to, &sum, sizeof sum);
        }
      }
    }
    for (; first < dim; ++first) {
      for (std::size_t m = 0; m < kMaxima; ++m) {
        for (std::size_t key = 0; key < keys; ++key) {
          sums[(i + m) * dim + first] += errors[key][i + m] * v[key * dim + first];
        }
      }
    }
  }
}

/// The errors of one key's weight, relative to `max`.
__attribute__((always_inline)) inline PerMaximum errors_of(float weight, const PerMaximum& factor,
                                                           const PerMaximum& inverse) {
  PerMaximum out;
  for (std::size_t i = 0; i < kReferenceMaxima; ++i) {
    const float scaled = weight * factor[i];
    out[i] = (round_to_e4m3(scaled) - scaled) * inverse[i];
  }
  return out;
}

/// moved[i * dim + d], for each maximum: the error of O before it is divided by the row's sum;
/// after them, that of the sum.
template <int kLanes>
__attribute__((always_inline)) inline void move(std::span<const float> scores, float max,
                                                const float* v, std::size_t dim, float* moved) {
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
    add_errors<kLanes>(errors.data(), keys, v + first * dim, dim, moved);
    for (std::size_t j = 0; j < keys; ++j) {
      for (std::size_t i = 0; i < kReferenceMaxima; ++i) {
        moved[kReferenceMaxima * dim + i] += errors[j][i];
      }
    }
  }
}

void move_baseline(std::span<const float> scores, float max, const float* v, std::size_t dim,
                   float* moved) {
  move<8>(scores, max, v, dim, moved);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void move_avx2(std::span<const float> scores, float max,
                                               const float* v, std::size_t dim, float* moved) {
  move<8>(scores, max, v, dim, moved);
}
__attribute__((target("avx512f"))) void move_avx512(std::span<const float> scores, float max,
                                                    const float* v, std::size_t dim, float* moved) {
  // A block is 64 dims.
  if (dim < 64) return move<8>(scores, max, v, dim, moved);
  move<16>(scores, max, v, dim, moved);
}
#endif

}  // namespace

WeightRounding weight_rounding(const std::vector<float>& scores, float max,
                               const std::vector<float>& v, int head_dim, Vectors vectors) {
  const auto dim = static_cast<std::size_t>(head_dim);
  std::vector<float> moved(kReferenceMaxima * (dim + 1));
#if defined(__x86_64__)
  const auto run = vectors == Vectors::kAvx512 ? move_avx512
                   : vectors == Vectors::kAvx2 ? move_avx2
                                               : move_baseline;
#else
  static_cast<void>(vectors);
  const auto run = move_baseline;
#endif
  run(scores, max, v.data(), dim, moved.data());
  WeightRounding squares;
  for (std::size_t at = 0; at < kReferenceMaxima * dim; ++at) {
    squares.output[at / dim] +=
        static_cast<double>(moved[at]) * moved[at] / static_cast<double>(dim);
  }
  for (std::size_t i = 0; i < kReferenceMaxima; ++i) {
    const double error = moved[kReferenceMaxima * dim + i];
    squares.sum[i] = error * error;
  }
  return squares;
}

}  // namespace fp8_sdpa::reference
