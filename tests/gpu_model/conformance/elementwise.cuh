// The conformance kernels' conversions and instructions that take one element: operators for
// launch_elementwise (kernels.cuh).
#pragma once

#include "gpu/gpu.hpp"

namespace conformance {
inline namespace GPU_BACKEND {

struct E4M3ToHalf {
  using In = std::uint16_t;
  using Out = __half2;
  GPU_FN static Out apply(In x) { return gpu::e4m3x2_to_half2(x); }
};
struct E5M2ToHalf {
  using In = std::uint16_t;
  using Out = __half2;
  GPU_FN static Out apply(In x) { return gpu::e5m2x2_to_half2(x); }
};
struct E4M3x4ToHalf4 {
  using In = std::uint32_t;
  using Out = gpu::Half4;
  GPU_FN static Out apply(In x) { return gpu::e4m3x4_to_half4(x); }
};
struct E5M2x4ToHalf4 {
  using In = std::uint32_t;
  using Out = gpu::Half4;
  GPU_FN static Out apply(In x) { return gpu::e5m2x4_to_half4(x); }
};
struct Float2ToE4M3x2 {
  using In = float2;
  using Out = std::uint16_t;
  GPU_FN static Out apply(In x) { return gpu::float2_to_e4m3x2(x.x, x.y); }
};
struct Float2ToE5M2x2 {
  using In = float2;
  using Out = std::uint16_t;
  GPU_FN static Out apply(In x) { return gpu::float2_to_e5m2x2(x.x, x.y); }
};
struct Half4ToE4M3x4 {
  using In = uint2;
  using Out = std::uint32_t;
  GPU_FN static Out apply(In x) { return gpu::half4_to_e4m3x4(x.x, x.y); }
};
struct Prmt {
  using In = uint3;
  using Out = std::uint32_t;
  GPU_FN static Out apply(In x) { return gpu::prmt(x.x, x.y, x.z); }
};
struct HalfToFloat {
  using In = __half;
  using Out = float;
  GPU_FN static Out apply(In x) { return gpu::half_to_float(x); }
};
struct Half2ToFloat2 {
  using In = __half2;
  using Out = float2;
  GPU_FN static Out apply(In x) { return gpu::half2_to_float2(x); }
};
struct FloatToHalf {
  using In = float;
  using Out = __half;
  GPU_FN static Out apply(In x) { return gpu::float_to_half(x); }
};
struct Float2ToHalf2 {
  using In = float2;
  using Out = __half2;
  GPU_FN static Out apply(In x) { return gpu::float2_to_half2(x.x, x.y); }
};
struct Float2ToHalf2Relu {
  using In = float2;
  using Out = std::uint32_t;
  GPU_FN static Out apply(In x) { return gpu::float2_to_half2_relu(x.x, x.y); }
};
struct FloatToBFloat16 {
  using In = float;
  using Out = __nv_bfloat16;
  GPU_FN static Out apply(In x) { return gpu::float_to_bfloat16(x); }
};
struct Float2ToBFloat162 {
  using In = float2;
  using Out = __nv_bfloat162;
  GPU_FN static Out apply(In x) { return gpu::float2_to_bfloat162(x.x, x.y); }
};
struct Exp2 {
  using In = float;
  using Out = float;
  GPU_FN static Out apply(In x) { return gpu::exp2_approx(x); }
};
struct Log2 {
  using In = float;
  using Out = float;
  GPU_FN static Out apply(In x) { return gpu::log2_approx(x); }
};
struct MaxNan {
  using In = float2;
  using Out = float;
  GPU_FN static Out apply(In x) { return gpu::max_nan(x.x, x.y); }
};
struct Fma {
  using In = float4;
  using Out = float;
  GPU_FN static Out apply(In x) { return gpu::fma(x.x, x.y, x.z); }
};
struct Divide {
  using In = float2;
  using Out = float;
  GPU_FN static Out apply(In x) { return gpu::divide(x.x, x.y); }
};
struct FmaHalf2 {
  using In = uint3;
  using Out = std::uint32_t;
  GPU_FN static Out apply(In x) { return gpu::fma_half2(x.x, x.y, x.z); }
};

}  // namespace GPU_BACKEND
}  // namespace conformance
