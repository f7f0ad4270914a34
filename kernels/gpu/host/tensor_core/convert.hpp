// The host executor's conversions: bit-equal to NVIDIA's headers (a test compares every code), but
// without their branches and calls, which would dominate a kernel's run time.
#pragma once

#include <cuda_fp16.h>

#include <array>
#include <bit>
#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace gpu::host {

/// Half's canonical NaN: what every conversion to half makes of a NaN.
inline constexpr std::uint16_t kHalfNan = 0x7fff;

/// The half of equal value to an E4M3 code (arXiv 2209.05433, table 1: bias 7, no infinities, NaN
/// at 0x7f).
constexpr std::uint16_t e4m3_to_half_bits(unsigned code) {
  constexpr unsigned kMantissaShift = 10 - 3;   // half's mantissa is 7 bits longer
  constexpr unsigned kBiasDifference = 15 - 7;  // half's exponent bias is 15
  const unsigned sign = (code & 0x80) << 8;
  const unsigned magnitude = code & 0x7f;
  if (magnitude == 0x7f) return kHalfNan;
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  unsigned exponent = magnitude >> 3;
  unsigned mantissa = magnitude & 0x7;
  unsigned half_exponent = exponent + kBiasDifference;
  if (exponent == 0) {  // subnormal in E4M3, normal in half
    half_exponent += 1;
    for (; mantissa < 0x8; mantissa <<= 1) --half_exponent;
    mantissa &= 0x7;
  }
  return static_cast<std::uint16_t>(sign | half_exponent << 10 | mantissa << kMantissaShift);
}

/// e4m3_to_half_bits for every code.
inline constexpr std::array<std::uint16_t, 256> kE4M3ToHalfBits = [] {
  std::array<std::uint16_t, 256> table{};
  for (unsigned code = 0; code < table.size(); ++code) table[code] = e4m3_to_half_bits(code);
  return table;
}();

/// The half of equal value to an E5M2 code, which is a half's upper byte.
constexpr std::uint16_t e5m2_to_half_bits(unsigned code) {
  const bool nan = (code & 0x7f) > 0x7c;
  return nan ? kHalfNan : static_cast<std::uint16_t>(code << 8);
}

inline __half half_from_bits(std::uint16_t bits) { return __half(__half_raw{bits}); }

inline __half2 half2_from_bits(std::uint16_t low, std::uint16_t high) {
  return __half2(half_from_bits(low), half_from_bits(high));
}

inline std::uint16_t bits_of(__half x) { return static_cast<__half_raw>(x).x; }

inline float half_to_float(__half x) {
#if defined(__F16C__)
  return _cvtsh_ss(bits_of(x));
#else
  return __half2float(x);
#endif
}

inline __half float_to_half(float x) {
#if defined(__F16C__)
  // F16C keeps a NaN's payload; the device does not.
  return half_from_bits(x == x ? _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT) : kHalfNan);
#else
  return __float2half_rn(x);
#endif
}

/// The half nearest to x, ties to even; canonical NaN.
inline std::uint16_t double_to_half_bits(double x) {
  constexpr int kMantissaShift = 52 - 10;
  constexpr std::uint64_t kBiasDifference = 1023 - 15;
  constexpr double kOverflow = 65520;  // halfway from the largest half to 65536
  constexpr double kMinNormal = 0x1p-14;
  constexpr double kStepIsSubnormal = 0x1p28;  // doubles from here on are 2^-24 apart
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto sign = static_cast<unsigned>(bits >> 48 & 0x8000);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const auto size = std::bit_cast<double>(magnitude);
  if (x != x) return kHalfNan;
  if (size >= kOverflow) return static_cast<std::uint16_t>(sign | 0x7c00);
  std::uint64_t half = 0;
  if (size < kMinNormal) {  // a sum rounds; 1024 steps are the code of the smallest normal
    half = std::bit_cast<std::uint64_t>(size + kStepIsSubnormal) -
           std::bit_cast<std::uint64_t>(kStepIsSubnormal);
  } else {  // just below half of the last bit, or half of it where that bit is odd
    const std::uint64_t round =
        (std::uint64_t{1} << (kMantissaShift - 1)) - 1 + (magnitude >> kMantissaShift & 1);
    half = ((magnitude + round) >> kMantissaShift) - (kBiasDifference << 10);
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// a * b + c, rounded once. The product, 22 bits from 2^-48 on, is exact in double. So is the sum,
/// or its rounding does not matter: either the product is below 2^-30 of c, and the result is c, or
/// the sum is past 2^28.
inline std::uint16_t fma_half_bits(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  const double product = static_cast<double>(half_to_float(half_from_bits(a))) *
                         static_cast<double>(half_to_float(half_from_bits(b)));
  return double_to_half_bits(product + static_cast<double>(half_to_float(half_from_bits(c))));
}

/// The E4M3 code nearest to a half, ties to even; 448 past the largest; 0x7f for every NaN.
inline std::uint8_t half_to_e4m3_bits(std::uint16_t bits) {
  constexpr unsigned kMantissaShift = 10 - 3;
  constexpr unsigned kBiasDifference = 15 - 7;
  constexpr unsigned kInfinity = 0x7c00;
  constexpr unsigned kLargest = 0x5f00;        // 448, code 0x7e
  constexpr unsigned kMinNormal = 0x2400;      // 2^-6, code 0x08
  constexpr float kStepIsSubnormal = 0x1p14F;  // floats from here on are 2^-9 apart
  const unsigned sign = bits >> 8 & 0x80;
  const unsigned magnitude = bits & 0x7fff;
  if (magnitude > kInfinity) return 0x7f;
  if (magnitude >= kLargest) return static_cast<std::uint8_t>(sign | 0x7e);
  unsigned code = 0;
  if (magnitude < kMinNormal) {  // as in double_to_half_bits
    const float size = half_to_float(half_from_bits(static_cast<std::uint16_t>(magnitude)));
    code = std::bit_cast<std::uint32_t>(size + kStepIsSubnormal) -
           std::bit_cast<std::uint32_t>(kStepIsSubnormal);
  } else {
    const unsigned round = (1U << (kMantissaShift - 1)) - 1 + (magnitude >> kMantissaShift & 1);
    code = ((magnitude + round) >> kMantissaShift) - (kBiasDifference << 3);
  }
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace gpu::host
