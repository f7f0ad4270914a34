// FP8 codes as numbers, by table.
#pragma once

#include <array>
#include <cstdint>

namespace gpu::host {

/// The 256 codes of an FP8 format.
struct Fp8Codes {
  std::array<float, 256> value;
  /// Of a finite code: 2^exponent times a significand below 2, subnormals with the smallest normal
  /// exponent; kZeroExponent for zeros.
  std::array<std::int8_t, 256> exponent;
};

/// Below every sum of two exponents even when one of the two is this.
inline constexpr std::int8_t kZeroExponent = -60;

const Fp8Codes& fp8_codes(bool is_e5m2);

}  // namespace gpu::host
