// Conversions between FP8, half, bfloat16 and float: PTX ISA, "Data Movement and Conversion
// Instructions: cvt". The semantics are those of NVIDIA's cuda_fp8.h, cuda_fp16.h and cuda_bf16.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include <cmath>

#include "gpu/host/tensor_core/convert.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// Four halves: what four FP8 codes become.
struct Half4 {
  __half2 low;   ///< of the lower two bytes
  __half2 high;  ///< of the upper two bytes
};

#if GPU_ON_DEVICE
namespace detail {

/// Multiplies two halves given as bits. Exact for powers of two within half's range; a NaN becomes
/// half's canonical NaN.
GPU_FN __half2 scale_half2(std::uint32_t bits, std::uint32_t factor) {
  std::uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(bits), "r"(factor));
  __half2 result;
  memcpy(&result, &product, sizeof result);
  return result;
}

/// E4M3 codes in the upper bytes of two 16-bit lanes, where no instruction converts them: exponent
/// and mantissa one bit down are a half's, but for the exponent's bias, which a factor of 2^8 makes
/// good, subnormals included. Code 0x7f, a NaN, gets all exponent bits set first.
GPU_FN __half2 e4m3_lanes_to_half2(std::uint32_t lanes) {
  constexpr std::uint32_t kTwoToThe8 = 0x5c005c00;
  const std::uint32_t magnitude = (lanes & 0x7f007f00U) >> 1;
  const std::uint32_t nan = (magnitude + 0x00800080U) & 0x40004000U;  // carries from 0x3f80 alone
  return scale_half2((lanes & 0x80008000U) | magnitude | nan, kTwoToThe8);
}

/// E5M2 codes, likewise: they are the upper bytes of halves.
GPU_FN __half2 e5m2_lanes_to_half2(std::uint32_t lanes) {
  constexpr std::uint32_t kOne = 0x3c003c00;
  return scale_half2(lanes, kOne);
}

/// Bytes 0 and 1 (low) or 2 and 3 (high) of `codes` as the upper bytes of two 16-bit lanes.
GPU_FN std::uint32_t low_lanes(std::uint32_t codes) { return __byte_perm(codes, 0, 0x1404); }
GPU_FN std::uint32_t high_lanes(std::uint32_t codes) { return __byte_perm(codes, 0, 0x3424); }

}  // namespace detail
#endif

/// cvt.rn.f16x2.e4m3x2 (PTX ISA, "cvt"; sm_89 and newer, arithmetic before), twice: four E4M3
/// codes, the lowest byte into low.x. Exact. NaN codes give half's canonical NaN, 0x7fff.
GPU_FN Half4 e4m3x4_to_half4(std::uint32_t codes) {
#if GPU_ON_DEVICE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t low;
  std::uint32_t high;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
  Half4 result;
  memcpy(&result.low, &low, sizeof low);
  memcpy(&result.high, &high, sizeof high);
  return result;
#else
  return {detail::e4m3_lanes_to_half2(detail::low_lanes(codes)),
          detail::e4m3_lanes_to_half2(detail::high_lanes(codes))};
#endif
#else
  return {host::half2_from_bits(host::kE4M3ToHalfBits[codes & 0xff],
                                host::kE4M3ToHalfBits[codes >> 8 & 0xff]),
          host::half2_from_bits(host::kE4M3ToHalfBits[codes >> 16 & 0xff],
                                host::kE4M3ToHalfBits[codes >> 24])};
#endif
}

/// cvt.rn.f16x2.e5m2x2 (PTX ISA, "cvt"; sm_89 and newer, arithmetic before), twice: four E5M2
/// codes, the lowest byte into low.x. Exact. NaN codes give half's canonical NaN, 0x7fff.
GPU_FN Half4 e5m2x4_to_half4(std::uint32_t codes) {
#if GPU_ON_DEVICE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t low;
  std::uint32_t high;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e5m2x2 %0, low;\ncvt.rn.f16x2.e5m2x2 %1, high;\n}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
  Half4 result;
  memcpy(&result.low, &low, sizeof low);
  memcpy(&result.high, &high, sizeof high);
  return result;
#else
  return {detail::e5m2_lanes_to_half2(detail::low_lanes(codes)),
          detail::e5m2_lanes_to_half2(detail::high_lanes(codes))};
#endif
#else
  return {host::half2_from_bits(host::e5m2_to_half_bits(codes & 0xff),
                                host::e5m2_to_half_bits(codes >> 8 & 0xff)),
          host::half2_from_bits(host::e5m2_to_half_bits(codes >> 16 & 0xff),
                                host::e5m2_to_half_bits(codes >> 24))};
#endif
}

/// The same for two codes, the low byte into .x.
GPU_FN __half2 e4m3x2_to_half2(std::uint16_t codes) { return e4m3x4_to_half4(codes).low; }
GPU_FN __half2 e5m2x2_to_half2(std::uint16_t codes) { return e5m2x4_to_half4(codes).low; }

/// cvt.f32.f16: exact.
GPU_FN float half_to_float(__half x) {
#if GPU_ON_DEVICE
  return __half2float(x);
#else
  return host::half_to_float(x);
#endif
}

/// cvt.rn.f16.f32: round to nearest even, infinity past 65519.99.
GPU_FN __half float_to_half(float x) {
#if GPU_ON_DEVICE
  return __float2half_rn(x);
#else
  return host::float_to_half(x);
#endif
}

/// cvt.f32.f16, twice: exact.
GPU_FN float2 half2_to_float2(__half2 x) {
#if GPU_ON_DEVICE
  return __half22float2(x);
#else
  return float2{host::half_to_float(x.x), host::half_to_float(x.y)};
#endif
}

/// cvt.rn.f16x2.f32: round to nearest even, `low` into .x.
GPU_FN __half2 float2_to_half2(float low, float high) {
#if GPU_ON_DEVICE
  return __floats2half2_rn(low, high);
#else
  return __half2(host::float_to_half(low), host::float_to_half(high));
#endif
}

/// cvt.rn.relu.f16x2.f32 (PTX ISA, "cvt"; sm_80 and newer): round to nearest even, subnormals kept,
/// negatives and -0 become +0, NaN the canonical 0x7fff; two halves as bits, `low` the lower one.
GPU_FN std::uint32_t float2_to_half2_relu(float low, float high) {
#if GPU_ON_DEVICE
  std::uint32_t halves;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
#else
  const auto half = [](float x) -> std::uint32_t {
    constexpr std::uint32_t kNaN = 0x7fff;
    if (std::isnan(x)) return kNaN;
    return x > 0.0F ? host::bits_of(host::float_to_half(x)) : 0;
  };
  return half(high) << 16 | half(low);
#endif
}

/// cvt.rn.satfinite.e4m3x2.f32 (PTX ISA, "cvt"; sm_89 and newer, arithmetic before): round to
/// nearest even, 448 past the largest finite code, NaN stays NaN; `low` into the low byte.
GPU_FN std::uint16_t float2_to_e4m3x2(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/// cvt.rn.satfinite.e5m2x2.f32, likewise: 57344 past the largest finite code, infinity included.
GPU_FN std::uint16_t float2_to_e5m2x2(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E5M2);
}

/// cvt.rn.satfinite.e4m3x2.f16x2 (PTX ISA, "cvt"; sm_89 and newer, arithmetic before), twice: four
/// halves, given as bits, the lower half of `low` into the lowest byte. Round to nearest even, 448
/// past the largest finite code, infinity included; a NaN of either sign becomes 0x7f.
GPU_FN std::uint32_t half4_to_e4m3x4(std::uint32_t low, std::uint32_t high) {
#if GPU_ON_DEVICE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t codes;
  asm("{\n.reg .b16 low, high;\ncvt.rn.satfinite.e4m3x2.f16x2 low, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f16x2 high, %2;\nmov.b32 %0, {low, high};\n}"
      : "=r"(codes)
      : "r"(low), "r"(high));
  return codes;
#else
  __half2 halves[2];
  memcpy(&halves[0], &low, sizeof low);
  memcpy(&halves[1], &high, sizeof high);
  const float2 first = half2_to_float2(halves[0]);
  const float2 second = half2_to_float2(halves[1]);
  return static_cast<std::uint32_t>(float2_to_e4m3x2(second.x, second.y)) << 16 |
         float2_to_e4m3x2(first.x, first.y);
#endif
#else
  const auto code = [](std::uint32_t two, int i) -> std::uint32_t {
    return host::half_to_e4m3_bits(static_cast<std::uint16_t>(two >> (16 * i)));
  };
  return code(low, 0) | code(low, 1) << 8 | code(high, 0) << 16 | code(high, 1) << 24;
#endif
}

/// cvt.rn.bf16.f32: round to nearest even.
GPU_FN __nv_bfloat16 float_to_bfloat16(float x) { return __float2bfloat16_rn(x); }

/// cvt.rn.bf16x2.f32 (sm_80 and newer): round to nearest even, `low` into .x.
GPU_FN __nv_bfloat162 float2_to_bfloat162(float low, float high) {
#if GPU_ON_DEVICE
  return __floats2bfloat162_rn(low, high);
#else
  return __nv_bfloat162(__float2bfloat16_rn(low), __float2bfloat16_rn(high));
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
