// 8-bit codes to values and back, by the reference's own tables: FP8, and signed bytes.
#pragma once

#include <array>
#include <cstdint>

#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::reference {

/// Of formats whose elements are 8 bits.
constexpr bool has_codes(Dtype dtype) { return size_of(dtype) == 1; }

/// The values of the 256 codes of a format. @pre has_codes(dtype).
const std::array<float, 256>& decode_table(Dtype dtype);

/// The nearest code, ties to even. What is beyond the largest finite value, infinities included,
/// becomes the largest finite code of its sign; NaN stays NaN. Of signed bytes -127 to 127, and 0
/// for NaN. @pre has_codes(dtype).
std::uint8_t encode_code(float value, Dtype dtype);

/// The largest finite value: 448 for E4M3, 57344 for E5M2, 127 for kInt8. @pre has_codes(dtype).
float max_finite(Dtype dtype);

}  // namespace fp8_sdpa::reference
