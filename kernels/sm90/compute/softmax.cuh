// Online softmax on a warpgroup's score accumulators.
//
// A lane holds, of 64 x kTileN scores, rows g + 8 h of its warp's 16 and columns 8 j + 2t + c, as
// s[4 j + 2 h + c]; g = lane / 4, t = lane % 4. The four lanes of a quad share their rows.
//
// Weights are 2^8 exp2(s - m): E4M3 holds 2^-9 to 448, so weights down to 2^-14 of the row's
// largest are normal numbers; none exceeds 2^8. The factor cancels in O / l. The sum l is of the
// weights before they are rounded, but with row sums by MMA (Config::mma_row_sums): their errors
// average out in it, whereas in O each meets its value. A NaN score makes its weight, hence l and O
// of its row, NaN.
#pragma once

#include <cmath>

#include "attention/online_softmax.hpp"
#include "attention/register_softmax.hpp"
#include "gpu/hopper.hpp"
#include "sm90/config.hpp"

namespace fp8_sdpa::sm90 {

GPU_FN bool rarely(bool condition) {
  return __builtin_expect(static_cast<long>(condition), 0L) != 0;
}

inline constexpr float kLog2WeightScale = 8.0F;

/// The maximum of no scores: a number, so that exponents need no case of their own, and below every
/// raw score: 448 * 448 * 256 < 2^26.
inline constexpr float kNoMax = -0x1p26F;

/// The same in units of log2(e): below every score there, of less than 2^127.
inline constexpr float kNoScaledMax = -0x1p127F;

/// What a lane remembers of its two rows.
struct Rows {
  float max[2] = {kNoMax, kNoMax};  ///< m, a raw score; equal in the quad
  float sum[2] = {0.0F, 0.0F};      ///< l, the lane's share
  float scale = 0.0F;               ///< raw score -> units of log2(e)
};
/// The same with Config::block_scales, where a tile's raw scores have a scale of their own, which
/// is Rows::scale while the tile is worked on: m is in units of log2(e).
GPU_FN Rows rows_of_scaled_max() {
  Rows rows;
  rows.max[0] = rows.max[1] = kNoScaledMax;
  rows.scale = 1.0F;
  return rows;
}

/// -inf in the columns of a tile from `left[h]` on, counted from the lane's column 2t.
template <int kRegisters>
GPU_FN void mask_scores(float (&s)[kRegisters], const int (&left)[2]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    if (i / 4 * 8 + i % 2 >= left[i / 2 % 2]) s[i] = -INFINITY;
  }
}

GPU_FN int larger(int a, int b) { return a > b ? a : b; }

/// The largest of one row's scores that a lane holds.
template <int kRegisters>
GPU_FN float largest(const float (&s)[kRegisters], int h) {
  float max = s[2 * h];
#pragma unroll
  for (int i = 1; i < kRegisters / 2; ++i) {
    max = gpu::max_nan(max, s[i / 2 * 4 + 2 * h + i % 2]);
  }
  return max;
}
/// The same compared as integers (three at a time, where floats go two at a time): right if any of
/// them is positive or +0; else some negative number.
template <int kRegisters>
GPU_FN float largest_as_integers(const float (&s)[kRegisters], int h) {
  const auto bits = [&](int i) { return __builtin_bit_cast(int, s[i / 2 * 4 + 2 * h + i % 2]); };
  int chain[2] = {bits(0), bits(kRegisters / 4)};
#pragma unroll
  for (int i = 1; i < kRegisters / 4; ++i) {
    chain[0] = larger(chain[0], bits(i));
    chain[1] = larger(chain[1], bits(kRegisters / 4 + i));
  }
  return __builtin_bit_cast(float, larger(chain[0], chain[1]));
}
/// Whether a wrong negative number would be seen: it is below a maximum that is not negative.
GPU_FN bool any_is_negative(const Rows& rows) {
  return (__builtin_bit_cast(int, rows.max[0]) | __builtin_bit_cast(int, rows.max[1])) < 0;
}

/// m takes in the largest of the lane's raw scores of a tile; `rescale` is what older sums, O and
/// l, must be multiplied with. A NaN score may or may not make m NaN: its weight is NaN, hence l
/// and O.
GPU_FN void grow_max(const float (&top)[2], Rows& rows, float (&rescale)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float max = gpu::max_nan(rows.max[h], attention::max_over_quad(top[h]));
    rescale[h] = gpu::exp2_approx((rows.max[h] - max) * rows.scale);
    rows.max[h] = max;
  }
}

/// The same of m in units of log2(e).
GPU_FN void grow_scaled_max(const float (&top)[2], Rows& rows, float (&rescale)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float max = gpu::max_nan(rows.max[h], attention::max_over_quad(top[h]) * rows.scale);
    rescale[h] = gpu::exp2_approx(rows.max[h] - max);
    rows.max[h] = max;
  }
}

/// What turns a row's raw scores into exponents of weights: score * scale + offset.
template <bool kScaledMax = false>
GPU_FN float weight_offset(const Rows& rows, int h) {
  if constexpr (kScaledMax) return kLog2WeightScale - rows.max[h];
  return gpu::fma(-rows.max[h], rows.scale, kLog2WeightScale);
}

/// Which weights are made by piecewise-linear exp2, and the word that holds a score's weight.
template <std::uint16_t kLinearExp2>
GPU_FN constexpr bool by_linear_exp2(int word) {
  return kLinearExp2 >> word & 1;
}
GPU_FN constexpr int word_of(int score) { return score / 8 * 2 + score / 2 % 2; }

/// Exponents of weights in fixed point: 6 fractional bits.
struct FixedPoint {
  float scale, offset;  ///< score * scale + offset has them, in units of half's smallest number
};
inline constexpr int kFractionBits = 6;
inline constexpr float kFixedOne = 0x1p-24F * (1 << kFractionBits);
/// log2 of the mean over x of what linear_exp2_half2() gives, over 2^x.
inline constexpr float kLog2OfLinearExp2 = 1.0574557F;

GPU_FN FixedPoint fixed_point(float scale, float offset) {
  constexpr float kHalfBias = 15.0F;
  return {scale * kFixedOne,
          gpu::fma(offset, kFixedOne, (kHalfBias - kLog2OfLinearExp2) * kFixedOne)};
}
/// exp2 of two scores' exponents, as halves, without the MUFU. Below 2^-13 halves are equally far
/// apart, by 2^-24, so that a conversion to half rounds to fixed point, cuts negatives off, and
/// packs two scores, all in one instruction; 2^5 exponents of 6 fractional bits end there. Shifted
/// up, the fixed point of x, read as a half's bits, is 2^floor(x) (1 + x - floor(x)), 2^x on a
/// chord (Schraudolph, Neural Computation 11(4), 1999, section 2): up to 6.1 % too much. So is that
/// of x + 1/2, over sqrt(2), but least where the other is most: their sum is within -1.0 % and +0.5
/// % of a multiple of 2^x. With x rounded to 1/64, +- 0.54 %: within -1.6 % and +1.1 %, 0.55 % rms,
/// where E4M3 rounds by up to 6.3 %, 2.6 % rms. Below 2^-15 it is 0; a NaN stays one (and may add 7
/// units to the mantissa of the other score, which is of the same row).
GPU_FN std::uint32_t linear_exp2_half2(float first, float second, const FixedPoint& to) {
  constexpr int kMantissaBits = 10;                    // of a half
  constexpr std::uint32_t kHalf = 0x02000200;          // 1/2 in fixed point, twice
  constexpr std::uint32_t kInverseSqrt2 = 0x39a839a8;  // as a half, twice
  const float upper = gpu::fma(second, to.scale, to.offset);
  const std::uint32_t fixed =
      gpu::float2_to_half2_relu(gpu::fma(first, to.scale, to.offset), upper);
  const std::uint32_t line = fixed << (kMantissaBits - kFractionBits);
  return gpu::fma_half2(line + kHalf, kInverseSqrt2, line);
}

/// Raw scores become weights in place, but for those by piecewise-linear exp2. What uses them is
/// apart, in WeightSums::add() and pack(): one warp keeps the MUFU busy only while nothing waits
/// for it.
template <int kFrom, int kTo, std::uint16_t kLinearExp2 = 0, int kRegisters>
GPU_FN void exponentiate(float (&s)[kRegisters], float scale, const float (&offset)[2]) {
#pragma unroll
  for (int i = kFrom; i < kTo; ++i) {
    if (by_linear_exp2<kLinearExp2>(word_of(i))) continue;
    s[i] = gpu::exp2_approx(gpu::fma(s[i], scale, offset[i / 2 % 2]));
  }
}
/// The same, each weight used at once: fewer registers.
template <int kRegisters>
GPU_FN void exponentiate_and_pack(const float (&s)[kRegisters], const float (&offset)[2],
                                  Rows& rows, std::uint32_t (&weights)[kRegisters / 16][4]) {
#pragma unroll
  for (int i = 0; i < kRegisters / 4; ++i) {
    const int h = i % 2;
    const float* first = &s[i / 2 * 8 + 2 * h];
    float p[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      p[c] = gpu::exp2_approx(gpu::fma(first[c / 2 * 4 + c % 2], rows.scale, offset[h]));
      rows.sum[h] += p[c];
    }
    weights[i / 4][i % 4] = static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(p[0], p[1])) |
                            static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(p[2], p[3])) << 16;
  }
}

/// l while it takes in weights: chains of additions, two a row.
struct WeightSums {
  float sum[2][2];

  GPU_FN explicit WeightSums(const Rows& rows) : sum{{rows.sum[0], 0.0F}, {rows.sum[1], 0.0F}} {}
  template <int kFrom, int kTo, int kRegisters>
  GPU_FN void add(const float (&s)[kRegisters]) {
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) sum[i / 2 % 2][i % 2] += s[i];
  }
  GPU_FN float all() const { return (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]); }
  GPU_FN void finish(Rows& rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.sum[h] = sum[h][0] + sum[h][1];
  }
};

/// Rounds weights to operands of P V, in the key order of transpose_values.cuh: weights[b][h + 2 a]
/// holds, of row g + 8 h, columns 32 b + 16 a + 2t + {0, 1, 8, 9}. Those of s[kFrom] to s[kTo - 1],
/// both multiples of 8; those by piecewise-linear exp2 are raw scores still.
template <int kFrom, int kTo, std::uint16_t kLinearExp2 = 0, int kRegisters>
GPU_FN void pack(const float (&s)[kRegisters], float scale, const float (&offset)[2],
                 std::uint32_t (&weights)[kRegisters / 16][4]) {
  static_assert(kFrom % 8 == 0 && kTo % 8 == 0);
#pragma unroll
  for (int i = kFrom / 4; i < kTo / 4; ++i) {
    const float* p = &s[i / 2 * 8 + 2 * (i % 2)];
    if (by_linear_exp2<kLinearExp2>(i)) {
      const FixedPoint to = fixed_point(scale, offset[i % 2]);
      weights[i / 4][i % 4] = gpu::half4_to_e4m3x4(linear_exp2_half2(p[0], p[1], to),
                                                   linear_exp2_half2(p[4], p[5], to));
      continue;
    }
    weights[i / 4][i % 4] = static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(p[0], p[1])) |
                            static_cast<std::uint32_t>(gpu::float2_to_e4m3x2(p[4], p[5])) << 16;
  }
}

/// The same to halves or bfloat16, in mma's layout, which is that of the scores.
template <Formats kFormats, int kRegisters>
GPU_FN void pack_16_bit(const float (&s)[kRegisters], std::uint32_t (&weights)[kRegisters / 8][4]) {
#pragma unroll
  for (int i = 0; i < kRegisters / 2; ++i) {
    const auto store = [&](const auto& pair) {
      static_assert(sizeof pair == sizeof(std::uint32_t));
      __builtin_memcpy(&weights[i / 4][i % 4], &pair, sizeof pair);
    };
    if constexpr (kFormats == Formats::kInt8Half) {
      store(gpu::float2_to_half2(s[2 * i], s[2 * i + 1]));
    } else {
      store(gpu::float2_to_bfloat162(s[2 * i], s[2 * i + 1]));
    }
  }
}

/// Scores of signed bytes are integers. Sums begin with these bits, which are those of 1.5 * 2^23,
/// so that a float comes out whose mantissa is the score, plus that number: a score is at most
/// 128 * 128 * 256 = 2^22 in magnitude. It cancels in differences of scores, which are all that
/// weights depend on.
inline constexpr std::uint32_t kInt8Zero = 0x4b400000;
inline constexpr float kInt8ZeroValue = 0x1.8p23F;

/// grow_max() where offsets of weights are rounded by more than their exponents are: older sums are
/// rescaled by what the offset changes by, so that all weights of a row are off by the same.
GPU_FN void grow_max_by_offsets(const float (&top)[2], Rows& rows, float (&rescale)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float before = weight_offset(rows, h);
    rows.max[h] = gpu::max_nan(rows.max[h], attention::max_over_quad(top[h]));
    rescale[h] = gpu::exp2_approx(weight_offset(rows, h) - before);
  }
}

/// m in units of log2(e), without kInt8Zero, as far as the offset says: l is of weights by it.
GPU_FN void scale_int8_max(Rows& rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows.max[h] = kLog2WeightScale - gpu::fma(kInt8ZeroValue, rows.scale, weight_offset(rows, h));
  }
  rows.scale = 1.0F;
}

}  // namespace fp8_sdpa::sm90
