// half and bfloat16 outputs, decoded by the reference's own arithmetic.
#pragma once

#include <cstdint>

#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::reference {

/// The value of a half or bfloat16 code. @pre size_of(dtype) == 2.
float decode_16(std::uint16_t code, Dtype dtype);

/// The nearest code, ties to even; overflow becomes infinity, NaN stays NaN.
/// @pre size_of(dtype) == 2.
std::uint16_t encode_16(float value, Dtype dtype);

}  // namespace fp8_sdpa::reference
