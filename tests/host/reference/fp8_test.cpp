// The reference's own conversions against NVIDIA's headers, which kernels use. Two implementations
// that agree everywhere.
#include "reference/formats/fp8.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/formats/half.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::reference {
namespace {

/// Equal bits, or both NaN.
testing::AssertionResult same(float got, float want) {
  if (std::isnan(got) && std::isnan(want)) return testing::AssertionSuccess();
  if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << got << " is not " << want;
}

float half_value(std::uint16_t bits) {
  __half_raw raw;
  raw.x = bits;
  return __half2float(__half(raw));
}

float bfloat16_value(std::uint16_t bits) {
  __nv_bfloat16_raw raw;
  raw.x = bits;
  return __bfloat162float(__nv_bfloat16(raw));
}

class Fp8 : public testing::TestWithParam<Dtype> {
 protected:
  static __nv_fp8_interpretation_t interpretation() {
    return GetParam() == Dtype::kE4M3 ? __NV_E4M3 : __NV_E5M2;
  }
  static void expect_encoded_as_cuda_does(float value) {
    const std::uint8_t got = encode_code(value, GetParam());
    const std::uint8_t want = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, interpretation());
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(decode_table(GetParam())[got]));
      EXPECT_TRUE(std::isnan(decode_table(GetParam())[want]));
    } else {
      ASSERT_EQ(int{got}, int{want}) << value;
    }
  }
};

TEST_P(Fp8, AllCodesDecodeAsCudaDecodesThem) {
  for (int code = 0; code < 256; ++code) {
    const __half_raw raw =
        __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), interpretation());
    EXPECT_TRUE(same(decode_table(GetParam())[static_cast<std::size_t>(code)], half_value(raw.x)))
        << "code " << code;
  }
}

TEST_P(Fp8, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) {
    const float value = decode_table(GetParam())[static_cast<std::size_t>(code)];
    if (std::isfinite(value)) {
      EXPECT_EQ(encode_code(value, GetParam()), code);
    }
  }
}

TEST_P(Fp8, AllHalfValuesEncodeAsCudaEncodesThem) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    expect_encoded_as_cuda_does(half_value(static_cast<std::uint16_t>(bits)));
  }
}

TEST_P(Fp8, MidpointsAndTheirNeighboursEncodeAsCudaEncodesThem) {
  const auto& table = decode_table(GetParam());
  for (std::size_t code = 0; code + 1 < 128; ++code) {
    if (!std::isfinite(table[code + 1])) break;
    const float midpoint = (table[code] + table[code + 1]) / 2.0F;  // exact: one more bit
    for (const float value : {midpoint, std::nextafter(midpoint, 0.0F),
                              std::nextafter(midpoint, INFINITY), table[code]}) {
      expect_encoded_as_cuda_does(value);
      expect_encoded_as_cuda_does(-value);
    }
    EXPECT_EQ(encode_code(midpoint, GetParam()) & 1, 0) << "ties go to even";
  }
}

TEST_P(Fp8, RandomFloatsEncodeAsCudaEncodesThem) {
  const PhiloxStream stream(3, 0);
  for (std::uint64_t block = 0; block < 250'000; ++block) {
    for (const std::uint32_t word : stream.block(block)) {
      expect_encoded_as_cuda_does(std::bit_cast<float>(word));
      // Most floats are far outside the range; these are within 2^-24 to 2^24.
      const std::uint32_t near = (word & 0x807FFFFFU) | ((103U + (word >> 23) % 48U) << 23);
      expect_encoded_as_cuda_does(std::bit_cast<float>(near));
    }
  }
}

TEST_P(Fp8, BeyondTheRangeSaturates) {
  const float largest = max_finite(GetParam());
  EXPECT_EQ(largest, GetParam() == Dtype::kE4M3 ? 448.0F : 57344.0F);
  const auto& table = decode_table(GetParam());
  for (const float value : {largest, largest * 1.0625F, 1e30F, INFINITY}) {
    EXPECT_EQ(table[encode_code(value, GetParam())], largest) << value;
    EXPECT_EQ(table[encode_code(-value, GetParam())], -largest) << value;
  }
  EXPECT_TRUE(std::isnan(table[encode_code(std::nanf(""), GetParam())]));
  EXPECT_TRUE(std::isnan(table[encode_code(-std::nanf(""), GetParam())]));
}

INSTANTIATE_TEST_SUITE_P(Formats, Fp8, testing::Values(Dtype::kE4M3, Dtype::kE5M2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Half, AllCodesDecodeAsCudaDecodesThem) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(same(decode_16(code, Dtype::kHalf), half_value(code))) << bits;
    ASSERT_TRUE(same(decode_16(code, Dtype::kBFloat16), bfloat16_value(code))) << bits;
  }
}

TEST(Half, EncodesAsCudaEncodes) {
  const PhiloxStream stream(4, 0);
  const auto expect_same = [](float value) {
    const auto half = static_cast<__half_raw>(__float2half_rn(value)).x;
    const auto bfloat16 = static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
    ASSERT_TRUE(same(decode_16(encode_16(value, Dtype::kHalf), Dtype::kHalf), half_value(half)))
        << value;
    ASSERT_TRUE(same(decode_16(encode_16(value, Dtype::kBFloat16), Dtype::kBFloat16),
                     bfloat16_value(bfloat16)))
        << value;
  };
  for (std::uint64_t block = 0; block < 100'000; ++block) {
    for (const std::uint32_t word : stream.block(block)) {
      expect_same(std::bit_cast<float>(word));
      const std::uint32_t near = (word & 0x807FFFFFU) | ((100U + (word >> 23) % 48U) << 23);
      expect_same(std::bit_cast<float>(near));
    }
  }
  expect_same(INFINITY);
  expect_same(65520.0F);  // half: the tie with the overflow
}

}  // namespace
}  // namespace fp8_sdpa::reference
