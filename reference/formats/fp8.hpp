// FP8 codes to values and back, by the reference's own tables.
#pragma once

#include <array>
#include <cstdint>

#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::reference {

/// The values of the 256 codes of an FP8 format. @pre is_fp8(dtype).
const std::array<float, 256>& decode_table(Dtype dtype);

/// The nearest code, ties to even. What is beyond the largest finite value, infinities included,
/// becomes the largest finite code of its sign; NaN stays NaN. @pre is_fp8(dtype).
std::uint8_t encode_fp8(float value, Dtype dtype);

/// The largest finite value: 448 for E4M3, 57344 for E5M2. @pre is_fp8(dtype).
float max_finite(Dtype dtype);

}  // namespace fp8_sdpa::reference
