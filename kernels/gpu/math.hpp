// Single instructions of the floating-point units: PTX ISA, "Floating Point Instructions".
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include <cmath>
#include <limits>

#include "gpu/host/tensor_core/convert.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

#if !GPU_ON_DEVICE
namespace detail {

/// The .ftz modifier: a subnormal becomes a zero of its sign.
inline float flush_subnormal(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

}  // namespace detail
#endif

/// ex2.approx.ftz.f32 (PTX ISA, "ex2"): 2^x. Relative error up to 2^-22 on the device, half an ulp
/// on the host. Subnormal inputs and results are flushed to zero; -inf gives 0, NaN gives NaN.
GPU_FN float exp2_approx(float x) {
#if GPU_ON_DEVICE
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  // A subnormal x gives exactly 1 with or without the flush; only the result needs it.
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0F : y;
#endif
}

/// lg2.approx.ftz.f32 (PTX ISA, "lg2"): log2(x). Absolute error up to 2^-22 on the device where x
/// is within [0.5, 2], relative 2^-22 elsewhere. 0 and subnormals give -inf, negatives and NaN
/// give NaN.
GPU_FN float log2_approx(float x) {
#if GPU_ON_DEVICE
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::log2(detail::flush_subnormal(x));
#endif
}

/// max.NaN.f32 (PTX ISA, "max"): the larger, or the canonical NaN, 0x7fffffff, if either is NaN; +0
/// is larger than -0.
GPU_FN float max_nan(float a, float b) {
#if GPU_ON_DEVICE
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  if (a > b) return a;
  if (b > a) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return std::bit_cast<float>(0x7fffffffU);
#endif
}

/// fma.rn.f32 (PTX ISA, "fma"): a * b + c, rounded once.
GPU_FN float fma(float a, float b, float c) {
#if GPU_ON_DEVICE
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// div.rn.f32 (PTX ISA, "div"): a / b, rounded once. The device flushes subnormals, as all its code
/// that is compiled for speed.
GPU_FN float divide(float a, float b) {
#if GPU_ON_DEVICE
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// fma.rn.f16x2 (PTX ISA, "fma"): a * b + c of two halves each, given as bits; rounded once, to
/// nearest even, subnormals kept. A NaN becomes half's canonical NaN, 0x7fff.
GPU_FN std::uint32_t fma_half2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if GPU_ON_DEVICE
  std::uint32_t y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
#else
  const auto half = [](std::uint32_t two, int i) {
    return static_cast<std::uint16_t>(two >> (16 * i));
  };
  const std::uint32_t low = host::fma_half_bits(half(a, 0), half(b, 0), half(c, 0));
  const std::uint32_t high = host::fma_half_bits(half(a, 1), half(b, 1), half(c, 1));
  return high << 16 | low;
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
