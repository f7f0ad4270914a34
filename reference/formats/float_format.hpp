// Small binary floating-point formats, decoded and encoded from their definition: the reference's
// own arithmetic, which shares no code, and so no bug, with the conversions that kernels use.
#pragma once

#include <bit>
#include <cstdint>

namespace fp8_sdpa::reference {

/// sign | exponent | mantissa, from the most significant bit.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t max_finite;  ///< code of the largest finite magnitude
  std::uint32_t infinity;    ///< code of infinity; equal to `nan` where the format has none
  std::uint32_t nan;         ///< the NaN code that encode() writes
  bool saturates;            ///< what overflows becomes max_finite; otherwise infinity

  constexpr std::uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
  constexpr bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_bit() - 1);
    return magnitude > max_finite && (infinity == nan || magnitude != infinity);
  }
  constexpr bool is_infinity(std::uint32_t code) const {
    return infinity != nan && (code & (sign_bit() - 1)) == infinity;
  }
};

/// "FP8 Formats for Deep Learning" (arXiv 2209.05433), table 1: no infinities, one NaN per sign.
inline constexpr FloatFormat kE4M3Format{4, 3, 7, 0x7E, 0x7F, 0x7F, true};
/// The same table: IEEE 754 conventions.
inline constexpr FloatFormat kE5M2Format{5, 2, 15, 0x7B, 0x7C, 0x7F, true};
/// IEEE 754 binary16.
inline constexpr FloatFormat kHalfFormat{5, 10, 15, 0x7BFF, 0x7C00, 0x7FFF, false};
/// bfloat16: the upper half of binary32.
inline constexpr FloatFormat kBFloat16Format{8, 7, 127, 0x7F7F, 0x7F80, 0x7FFF, false};

/// 2^exponent. @pre it is a normal double.
constexpr double power_of_two(int exponent) {
  constexpr int kBias = 1023;
  constexpr int kMantissaBits = 52;
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kBias) << kMantissaBits);
}

/// The value of a code. Exact: every format here is a subset of binary32.
constexpr float decode(const FloatFormat& format, std::uint32_t code) {
  const bool negative = (code & format.sign_bit()) != 0;
  const std::uint32_t magnitude = code & (format.sign_bit() - 1);
  double value = 0.0;
  if (format.is_nan(code)) {
    value = __builtin_nan("");
  } else if (format.is_infinity(code)) {
    value = __builtin_inf();
  } else {
    const std::uint32_t mantissa = magnitude & ((1U << format.mantissa_bits) - 1);
    const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
    // Exponent field 0: subnormal, no implicit one, the smallest normal number's exponent.
    const std::uint32_t significand =
        exponent == 0 ? mantissa : mantissa | (1U << format.mantissa_bits);
    const int scale = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
    value = static_cast<double>(significand) * power_of_two(scale);
  }
  return static_cast<float>(negative ? -value : value);
}

/// The code nearest to `value`, ties to even. Overflow and infinities follow `format.saturates`; a
/// NaN becomes the format's NaN without sign.
constexpr std::uint32_t encode(const FloatFormat& format, float value) {
  constexpr int kFloatMantissaBits = 23;
  constexpr int kFloatBias = 127;
  constexpr std::uint32_t kFloatInfinity = 0x7F800000U;
  constexpr std::uint32_t kFloatSign = 0x80000000U;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~kFloatSign;
  const std::uint32_t sign = (bits & kFloatSign) != 0 ? format.sign_bit() : 0U;
  const std::uint32_t overflow = format.saturates ? format.max_finite : format.infinity;
  if (magnitude > kFloatInfinity) return format.nan;
  if (magnitude == kFloatInfinity) return sign | overflow;

  // value = significand * 2^(exponent - 23)
  const int field = static_cast<int>(magnitude >> kFloatMantissaBits);
  const std::uint64_t significand =
      (magnitude & ((1U << kFloatMantissaBits) - 1)) | (field == 0 ? 0U : 1U << kFloatMantissaBits);
  const int exponent = (field == 0 ? 1 : field) - kFloatBias;
  // Round to a multiple of the target's spacing at this exponent; subnormals share the smallest.
  const int smallest = 1 - format.bias;
  const int target = exponent < smallest ? smallest : exponent;
  const int dropped = kFloatMantissaBits - format.mantissa_bits + (target - exponent);
  // With more bits dropped than the significand has, plus one, the value is below half a step.
  constexpr int kAllDropped = kFloatMantissaBits + 2;
  std::uint64_t steps = 0;
  if (dropped < kAllDropped) {
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    const std::uint64_t remainder = significand & ((half << 1) - 1);
    steps = significand >> dropped;
    if (remainder > half || (remainder == half && (steps & 1) != 0)) ++steps;
  }
  // The implicit one in `steps` adds 1 to the exponent field; so does a carry out of the mantissa.
  const std::uint64_t code =
      (static_cast<std::uint64_t>(target - smallest) << format.mantissa_bits) + steps;
  return sign | (code > format.max_finite ? overflow : static_cast<std::uint32_t>(code));
}

}  // namespace fp8_sdpa::reference
