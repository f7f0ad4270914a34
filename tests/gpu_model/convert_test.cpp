// The host executor's conversions are bit-equal to NVIDIA's headers, for every code.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "gpu/gpu.hpp"

namespace gpu_model {
namespace {

constexpr unsigned kCodes16 = 1U << 16;

template <class T>
auto bits(T value) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t> result;
  std::memcpy(&result, &value, sizeof(T));
  return result;
}

TEST(Convert, Fp8PairsAreThoseOfCudaFp8) {
  for (unsigned codes = 0; codes < kCodes16; ++codes) {
    const auto pair = static_cast<std::uint16_t>(codes);
    ASSERT_EQ(bits(gpu::e4m3x2_to_half2(pair)),
              bits(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3))))
        << codes;
    ASSERT_EQ(bits(gpu::e5m2x2_to_half2(pair)),
              bits(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E5M2))))
        << codes;
  }
}

TEST(Convert, HalfToFloatIsThatOfCudaFp16) {
  for (unsigned code = 0; code < kCodes16; ++code) {
    const __half half(__half_raw{static_cast<unsigned short>(code)});
    const float got = gpu::half_to_float(half);
    const float want = __half2float(half);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << code;
    } else {
      ASSERT_EQ(bits(got), bits(want)) << code;
    }
  }
}

TEST(Convert, HalvesToE4M3AreThoseOfCudaFp8) {
  for (unsigned code = 0; code < kCodes16; ++code) {
    const unsigned halves[] = {code, code ^ 0x8000U, code * 23173U % kCodes16, kCodes16 - 1 - code};
    std::uint32_t want = 0;
    for (int i = 0; i < 4; ++i) {
      const __half_raw half{static_cast<unsigned short>(halves[i])};
      want |= std::uint32_t{__nv_cvt_halfraw_to_fp8(half, __NV_SATFINITE, __NV_E4M3)} << (8 * i);
    }
    ASSERT_EQ(gpu::half4_to_e4m3x4(halves[0] | halves[1] << 16, halves[2] | halves[3] << 16), want)
        << code;
  }
}

TEST(Convert, FloatToHalfIsThatOfCudaFp16) {
  // An odd step through all floats: every exponent, and many mantissas of each.
  constexpr std::uint64_t kStep = 4099;
  for (std::uint64_t code = 0; code < (std::uint64_t{1} << 32); code += kStep) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(code));
    ASSERT_EQ(bits(gpu::float_to_half(x)), bits(__float2half_rn(x))) << x;
    ASSERT_EQ(bits(gpu::float_to_bfloat16(x)), bits(__float2bfloat16_rn(x))) << x;
  }
}

}  // namespace
}  // namespace gpu_model
