#include "reference/formats/fp8.hpp"

#include <cassert>
#include <cstddef>

#include "reference/formats/float_format.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr std::array<float, 256> make_table(const FloatFormat& format) {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = decode(format, static_cast<std::uint32_t>(code));
  }
  return table;
}

constexpr std::array<float, 256> kE4M3Values = make_table(kE4M3Format);
constexpr std::array<float, 256> kE5M2Values = make_table(kE5M2Format);
static_assert(kE4M3Values[kE4M3Format.max_finite] == 448.0F);
static_assert(kE5M2Values[kE5M2Format.max_finite] == 57344.0F);
static_assert(kE4M3Values[1] == 0x1p-9F && kE5M2Values[1] == 0x1p-16F);

}  // namespace

const std::array<float, 256>& decode_table(Dtype dtype) {
  assert(is_fp8(dtype));
  return dtype == Dtype::kE4M3 ? kE4M3Values : kE5M2Values;
}

std::uint8_t encode_fp8(float value, Dtype dtype) {
  assert(is_fp8(dtype));
  const FloatFormat& format = dtype == Dtype::kE4M3 ? kE4M3Format : kE5M2Format;
  return static_cast<std::uint8_t>(encode(format, value));
}

float max_finite(Dtype dtype) {
  const FloatFormat& format = dtype == Dtype::kE4M3 ? kE4M3Format : kE5M2Format;
  return decode_table(dtype)[format.max_finite];
}

}  // namespace fp8_sdpa::reference
