// Conversions: every code of every format, and floats at and around every half.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <numeric>

#include "tests/gpu_model/conformance/case_builder.hpp"
#include "tests/gpu_model/conformance/expectations.hpp"

namespace conformance {
namespace {

constexpr unsigned kCodes16 = 1U << 16;

std::vector<std::uint16_t> all_codes16() {
  std::vector<std::uint16_t> codes(kCodes16);
  std::iota(codes.begin(), codes.end(), std::uint16_t{0});
  return codes;
}

/// Two FP8 codes as two halves: exact, so any rounding function gives them.
std::vector<std::uint32_t> fp8x2_as_half2(const Format& format) {
  std::vector<std::uint32_t> halves(kCodes16);
  for (unsigned codes = 0; codes < kCodes16; ++codes) {
    halves[codes] = nearest_half(decode(format, codes & 0xff)) |
                    static_cast<std::uint32_t>(nearest_half(decode(format, codes >> 8))) << 16;
  }
  return halves;
}

std::vector<float> all_halves_as_float() {
  std::vector<float> floats(kCodes16);
  for (unsigned code = 0; code < kCodes16; ++code) {
    floats[code] = static_cast<float>(decode(kHalf, code));
  }
  return floats;
}

/// Every half, the midpoint to the next one, and the floats on both sides of each; then the ends of
/// float's range and some NaNs.
std::vector<float> floats_around_halves() {
  std::vector<float> floats;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (unsigned code = 0; code < kCodes16; ++code) {
    const auto x = static_cast<float>(decode(kHalf, code));
    const auto next = static_cast<float>(decode(kHalf, code + 1));
    for (const float middle : {x, x + (next - x) / 2}) {
      floats.insert(floats.end(), {middle, std::nextafter(middle, kInfinity),
                                   std::nextafter(middle, -kInfinity)});
    }
  }
  for (const float x :
       {65519.0F, 65520.0F, 65521.0F, 1e-7F, 2e-8F, 3e-8F, std::numeric_limits<float>::max(),
        std::numeric_limits<float>::min(), std::numeric_limits<float>::denorm_min(), kInfinity}) {
    floats.insert(floats.end(), {x, -x});
  }
  for (const std::uint32_t nan : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0x7fffffffU}) {
    floats.push_back(std::bit_cast<float>(nan));
  }
  if (floats.size() % 2 != 0) floats.push_back(0.0F);
  return floats;
}

template <class Round>
auto rounded(const std::vector<float>& floats, Round round) {
  std::vector<std::uint16_t> codes;
  codes.reserve(floats.size());
  for (const float x : floats) codes.push_back(round(x));
  return codes;
}

/// Negatives, -0 too, become +0.
std::uint16_t nearest_half_from_zero(double x) { return x <= 0.0 ? 0 : nearest_half(x); }

}  // namespace

void add_conversion_cases(std::vector<Case>& all) {
  const auto codes = all_codes16();
  all.push_back(
      make_case("e4m3x2_to_half2", Primitive::kE4M3ToHalf, codes, fp8x2_as_half2(kE4M3), kCodes16));
  all.push_back(
      make_case("e5m2x2_to_half2", Primitive::kE5M2ToHalf, codes, fp8x2_as_half2(kE5M2), kCodes16));
  all.push_back(
      make_case("half_to_float", Primitive::kHalfToFloat, codes, all_halves_as_float(), kCodes16));
  all.push_back(make_case("half2_to_float2", Primitive::kHalf2ToFloat2, codes,
                          all_halves_as_float(), kCodes16 / 2));
  const auto floats = floats_around_halves();
  const auto count = static_cast<int>(floats.size());
  const auto halves = rounded(floats, nearest_half);
  all.push_back(make_case("float_to_half", Primitive::kFloatToHalf, floats, halves, count));
  all.push_back(make_case("float2_to_half2", Primitive::kFloat2ToHalf2, floats, halves, count / 2));
  all.push_back(make_case("float2_to_half2_relu", Primitive::kFloat2ToHalf2Relu, floats,
                          rounded(floats, nearest_half_from_zero), count / 2));
  all.push_back(make_case("float_to_bfloat16", Primitive::kFloatToBFloat16, floats,
                          rounded(floats, nearest_bfloat16), count));
  all.push_back(make_case("float2_to_bfloat162", Primitive::kFloat2ToBFloat162, floats,
                          rounded(floats, nearest_bfloat16), count / 2));
}

}  // namespace conformance
