// Conversions between FP8, half, bfloat16 and float: PTX ISA, "Data Movement and Conversion
// Instructions: cvt". The semantics are those of NVIDIA's cuda_fp8.h, cuda_fp16.h and cuda_bf16.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/convert.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// cvt.rn.f16x2.e4m3x2 (PTX ISA, "cvt"; sm_89 and newer, arithmetic before): two E4M3 codes, the
/// low byte into .x. Exact. NaN codes give half's canonical NaN, 0x7fff.
GPU_FN __half2 e4m3x2_to_half2(std::uint16_t codes) {
#if GPU_ON_DEVICE
  return __half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3));
#else
  return host::half2_from_bits(host::kE4M3ToHalfBits[codes & 0xff],
                               host::kE4M3ToHalfBits[codes >> 8]);
#endif
}

/// cvt.rn.f16x2.e5m2x2 (PTX ISA, "cvt"; sm_89 and newer, arithmetic before): two E5M2 codes, the
/// low byte into .x. Exact. NaN codes give half's canonical NaN, 0x7fff.
GPU_FN __half2 e5m2x2_to_half2(std::uint16_t codes) {
#if GPU_ON_DEVICE
  return __half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E5M2));
#else
  return host::half2_from_bits(host::e5m2_to_half_bits(codes & 0xff),
                               host::e5m2_to_half_bits(codes >> 8));
#endif
}

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

/// cvt.rn.bf16.f32: round to nearest even.
GPU_FN __nv_bfloat16 float_to_bfloat16(float x) {
  return __float2bfloat16_rn(x);
}

}  // namespace GPU_BACKEND
}  // namespace gpu
