#include "reference/formats/half.hpp"

#include <cassert>

#include "reference/formats/float_format.hpp"

namespace fp8_sdpa::reference {

float decode_16(std::uint16_t code, Dtype dtype) {
  assert(size_of(dtype) == 2);
  return decode(dtype == Dtype::kHalf ? kHalfFormat : kBFloat16Format, code);
}

std::uint16_t encode_16(float value, Dtype dtype) {
  assert(size_of(dtype) == 2);
  return static_cast<std::uint16_t>(
      encode(dtype == Dtype::kHalf ? kHalfFormat : kBFloat16Format, value));
}

}  // namespace fp8_sdpa::reference
