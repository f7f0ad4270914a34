// What primitives must compute, worked out independently of kernels/gpu: from the formats'
// definitions and in double precision.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace conformance {

/// A binary floating-point format: IEEE 754 in its layout, with or without infinities.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline constexpr Format kHalf{5, 10, true};
inline constexpr Format kBFloat16{8, 7, true};
inline constexpr Format kE5M2{5, 2, true};
/// One NaN per sign, all exponent and mantissa bits set, and no infinity (arXiv 2209.05433).
inline constexpr Format kE4M3{4, 3, false};

/// The value of a code.
inline double decode(const Format& format, unsigned code) {
  const unsigned mantissa = code & ((1U << format.mantissa_bits) - 1);
  const int exponent =
      static_cast<int>(code >> format.mantissa_bits & ((1U << format.exponent_bits) - 1));
  const bool negative = (code >> (format.mantissa_bits + format.exponent_bits) & 1) != 0;
  const int top_exponent = (1 << format.exponent_bits) - 1;
  const unsigned top_mantissa = (1U << format.mantissa_bits) - 1;
  double magnitude = 0;
  if (exponent == top_exponent && format.has_infinity) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  } else if (exponent == top_exponent && mantissa == top_mantissa) {
    magnitude = std::nan("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (1U << format.mantissa_bits),
                           exponent - format.bias() - format.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

/// The half nearest to x, ties to even; canonical NaN.
inline std::uint16_t nearest_half(double x) {
  constexpr std::uint16_t kNan = 0x7fff;
  constexpr std::uint16_t kInfinity = 0x7c00;
  constexpr double kOverflow = 65520;  // halfway from the largest half to 65536
  if (std::isnan(x)) return kNan;
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::fabs(x);
  if (magnitude >= kOverflow) return sign | kInfinity;
  // Codes count upwards with the value: in steps of one quantum within a binade.
  const int exponent = magnitude == 0 ? -14 : std::max(-14, std::ilogb(magnitude));
  const double quantum = std::ldexp(1.0, exponent - kHalf.mantissa_bits);
  const double steps = std::nearbyint(magnitude / quantum);  // 1024 to 2048 in a normal binade
  const double code = steps + (exponent + 14) * 1024.0;
  return static_cast<std::uint16_t>(sign + static_cast<unsigned>(code));
}

/// a * b + c of halves, rounded once: finite halves are integers times 2^-24, so all of it is
/// integer arithmetic in steps of 2^-48, below 2^82.
inline std::uint16_t exact_half_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  __extension__ using Wide = __int128;
  constexpr std::uint16_t kInfinity = 0x7c00;
  constexpr int kStepOfSubnormals = 24;  // 2^-24 in steps
  const auto finite = [](std::uint16_t x) { return (x & kInfinity) != kInfinity; };
  if (!finite(a) || !finite(b) || !finite(c)) {
    // IEEE 754's rules for these, to which rounding adds nothing.
    const bool product_is_finite = finite(a) && finite(b);
    const double product = product_is_finite ? 0.0 : decode(kHalf, a) * decode(kHalf, b);
    return nearest_half(product + decode(kHalf, c));
  }
  const auto fixed = [](std::uint16_t x) -> Wide {
    const int exponent = x >> 10 & 0x1f;
    const Wide mantissa = x & 0x3ff;
    const Wide magnitude = exponent == 0 ? mantissa : (mantissa + 0x400) << (exponent - 1);
    return (x & 0x8000) != 0 ? -magnitude : magnitude;
  };
  const Wide sum = fixed(a) * fixed(b) + fixed(c) * (Wide{1} << 24);
  // A zero is negative only as the sum of two.
  const bool negative = sum == 0 ? ((a ^ b) & c & 0x8000) != 0 : sum < 0;
  const Wide magnitude = sum < 0 ? -sum : sum;
  int shift = kStepOfSubnormals;
  while (magnitude >> shift >= 0x800) ++shift;
  const Wide rest = magnitude - (magnitude >> shift << shift);
  const Wide tie = Wide{1} << (shift - 1);
  Wide steps = magnitude >> shift;
  if (rest > tie || (rest == tie && steps % 2 != 0)) ++steps;
  const auto code = static_cast<unsigned>(steps) + (shift - kStepOfSubnormals) * 0x400U;
  const unsigned half = code < kInfinity ? code : kInfinity;
  return static_cast<std::uint16_t>(half | (negative ? 0x8000U : 0U));
}

/// The bfloat16 nearest to x, ties to even; canonical NaN.
inline std::uint16_t nearest_bfloat16(float x) {
  constexpr std::uint16_t kNan = 0x7fff;
  if (std::isnan(x)) return kNan;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t low = bits & 0xffff;
  const std::uint32_t high = bits >> 16;
  const bool up = low > 0x8000 || (low == 0x8000 && (high & 1) != 0);
  return static_cast<std::uint16_t>(high + (up ? 1 : 0));
}

}  // namespace conformance
