#include "reference/formats/fp8.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
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
constexpr std::array<float, 256> kInt8Values = [] {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    table[static_cast<std::size_t>(code)] = static_cast<float>(code < 128 ? code : code - 256);
  }
  return table;
}();
constexpr float kMaxInt8 = 127.0F;
static_assert(kE4M3Values[kE4M3Format.max_finite] == 448.0F);
static_assert(kE5M2Values[kE5M2Format.max_finite] == 57344.0F);
static_assert(kE4M3Values[1] == 0x1p-9F && kE5M2Values[1] == 0x1p-16F);

}  // namespace

const std::array<float, 256>& decode_table(Dtype dtype) {
  assert(has_codes(dtype));
  if (dtype == Dtype::kInt8) return kInt8Values;
  return dtype == Dtype::kE4M3 ? kE4M3Values : kE5M2Values;
}

std::uint8_t encode_code(float value, Dtype dtype) {
  assert(has_codes(dtype));
  if (dtype == Dtype::kInt8) {
    if (std::isnan(value)) return 0;
    const float nearest = std::nearbyint(std::clamp(value, -kMaxInt8, kMaxInt8));
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(nearest));
  }
  const FloatFormat& format = dtype == Dtype::kE4M3 ? kE4M3Format : kE5M2Format;
  return static_cast<std::uint8_t>(encode(format, value));
}

float max_finite(Dtype dtype) {
  if (dtype == Dtype::kInt8) return kMaxInt8;
  const FloatFormat& format = dtype == Dtype::kE4M3 ? kE4M3Format : kE5M2Format;
  return decode_table(dtype)[format.max_finite];
}

}  // namespace fp8_sdpa::reference
