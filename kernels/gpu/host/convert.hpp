// The host executor's conversions: bit-equal to NVIDIA's headers (a test compares every code), but
// without their branches and calls, which would dominate a kernel's run time.
#pragma once

#include <cuda_fp16.h>

#include <array>
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

inline __half half_from_bits(std::uint16_t bits) {
  return __half(__half_raw{bits});
}

inline __half2 half2_from_bits(std::uint16_t low, std::uint16_t high) {
  return __half2(half_from_bits(low), half_from_bits(high));
}

inline std::uint16_t bits_of(__half x) {
  return static_cast<__half_raw>(x).x;
}

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

}  // namespace gpu::host
