// What rounding P to E4M3 does to a row of O, for every maximum that a right kernel may round
// relative to.
//
// P's weights are exp(s_j - m) 2^8. A kernel's m is what its order of keys makes it: the row's own
// maximum, a running one from the first key or from the last, that of one group of keys. O forgets
// m again, but the rounding does not: a weight of mantissa 8 2^f eighths, 0 <= f < 1, is off by
// (round(8 2^f) - 8 2^f) / (8 2^f), from 0 up to 1/17, and another m moves f. With weights that lie
// anywhere the errors average out, whatever m is. Weights that agree to within one step of E4M3, a
// tenth of an octave, are all off by the same: a long tail is then lost, or gained, up to 1/17 of
// its mass, in one right kernel, while it is met exactly by another. So no single m tells what a
// right kernel may do. (P in half is off by 2^-11 at most, which is what O's own rounding is off by
// at most; that is left to the budgets' multiples.)
//
// Which m: the products of one FP8 multiply, 32 keys deep, are summed in one accumulator, so their
// weights have one m; it is one of the scores and as large as each of the 32; nor is it larger
// than the row's largest. Between the two, what matters is m's fraction in units of ln 2, and for
// E4M3's subnormals how large it is, which costs most at the top. So m goes through
// kReferenceMaxima equal parts of the octave below the row's maximum, or stops at the largest of
// the 32: weights that are equal to their maximum stay exact, as in a kernel.
//
// How many: for weights that agree, of whatever f, the largest error that n parts find is short of
// 1/17 by a factor of 3.2 (n = 4), 2.0 (8), 1.7 (12), 1.36 (16). A head's rows may all agree, and a
// large head may exceed its budget 1.5 times: 16 parts cover it, 14 (1.58) do not. In rms over the
// parts, 1/17 is at most 2.35 times what 16 find; a row may exceed its budget 6 times.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "reference/oracle/vectors.hpp"

namespace fp8_sdpa::reference {

inline constexpr int kReferenceMaxima = 16;

/// Mean squares, one for each reference maximum.
using RoundingSquares = std::array<double, kReferenceMaxima>;
/// Of a row of O, and of its sum of rounded weights, which is O's column for V = 1.
struct WeightRounding {
  RoundingSquares output{}, sum{};
};

/// A weight as E4M3 holds it, as a value: to nearest, ties to even. 0 <= weight <= 448.
inline float round_to_e4m3(float weight) {
  constexpr float kSmallestNormal = 0x1p-6F;
  constexpr std::uint32_t kExponent = 0x7F800000U;
  const auto bits = std::bit_cast<std::uint32_t>(std::max(weight, kSmallestNormal));
  // fp32's steps are 2^-23 of a binade. A number 2^23 times E4M3's step, 2^-3 of the binade, has
  // just that step, so that a sum with it is rounded to it.
  const float shift = std::bit_cast<float>(bits & kExponent) * 0x1.8p20F;
  return (weight + shift) - shift;
}

/// The mean squares of sum_j (error of p_j) v_j, over the dims, and of sum_j (error of p_j), with
/// p_j = exp(scores[j] - max) before it is divided by the row's sum. `max` is the largest score; v
/// is (keys, head_dim). NaN where a score is NaN or infinitely large. The same bits by any vectors.
WeightRounding weight_rounding(const std::vector<float>& scores, float max,
                               const std::vector<float>& v, int head_dim,
                               Vectors vectors = widest_vectors());

}  // namespace fp8_sdpa::reference
