// Tensor maps: what TMA knows of a tensor in global memory. CUDA Driver API, "Tensor Map Object
// Management"; PTX ISA, "Tensors".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpu/backend.hpp"
#include "gpu/shared_matrix.hpp"
#include "gpu/types.hpp"
#if GPU_ON_DEVICE
#include <cuda.h>

#include <cstring>
#include <string>

#include "gpu/cuda_check.hpp"
#else
#include "gpu/host/memory/tensor_map.hpp"
#endif

namespace gpu {

inline constexpr int kMaxTensorRank = 4;

/// A tensor of 2 to 4 dimensions and the box of it that one TMA instruction moves. Dimension 0 is
/// the contiguous one; entries past `rank` are not read.
struct TensorShape {
  const void* base = nullptr;  ///< in global memory, a multiple of 16 bytes
  int element_bytes = 1;       ///< 1, 2 or 4; the type does not matter
  int rank = 2;
  std::array<std::uint64_t, kMaxTensorRank> sizes{};  ///< in elements, 1 to 2^32
  /// In bytes, of dimensions 1 and up: strides[0] is not read. Multiples of 16 below 2^40.
  std::array<std::uint64_t, kMaxTensorRank> strides{};
  /// In elements, 1 to 256. Innermost a multiple of 16 bytes, with a swizzle at most its width.
  std::array<std::uint32_t, kMaxTensorRank> box{};
  Swizzle swizzle = Swizzle::kNone;
};

/// An encoded tensor map, of either backend. Lives in a kernel's Params, which are
/// __grid_constant__, and is passed on by reference: TMA reads it where it is.
struct alignas(64) TensorMap {
  std::array<unsigned char, 128> bytes;
};

/// Empty, or what is wrong with a shape, on either backend.
fp8_sdpa::Status check_tensor_shape(const TensorShape& shape);

inline namespace GPU_BACKEND {

#if GPU_ON_DEVICE
namespace detail {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's encoder, through the runtime: nothing here links libcuda. Null with an error.
inline fp8_sdpa::Status find_encoder(EncodeTiled& encoder) {
  constexpr unsigned kFirstVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, kFirstVersion, cudaEnableDefault, &result));
#else
  static_cast<void>(kFirstVersion);
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    return fp8_sdpa::unsupported(
        "this driver has no cuTensorMapEncodeTiled: TMA needs a driver of CUDA 12.0 or newer");
  }
  encoder = reinterpret_cast<EncodeTiled>(found);
  return {};
}

inline CUtensorMapDataType data_type(int element_bytes) {
  if (element_bytes == 1) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  return element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32;
}

}  // namespace detail
#endif

/// Encodes `shape`; elements outside the tensor are loaded as zeros and not stored.
/// kInvalidArgument for a shape that TMA cannot serve, kUnsupported for a driver that knows none.
inline fp8_sdpa::Status encode_tensor_map(const TensorShape& shape, TensorMap& map) {
  if (auto status = check_tensor_shape(shape); !status.ok()) return status;
#if GPU_ON_DEVICE
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));
  detail::EncodeTiled encoder = nullptr;
  if (auto status = detail::find_encoder(encoder); !status.ok()) return status;
  constexpr std::array<cuuint32_t, kMaxTensorRank> kEveryElement{1, 1, 1, 1};
  std::array<cuuint64_t, kMaxTensorRank> sizes{};
  std::array<cuuint64_t, kMaxTensorRank> strides{};
  for (int i = 0; i < shape.rank; ++i) sizes[i] = shape.sizes[i];
  for (int i = 1; i < shape.rank; ++i) strides[i - 1] = shape.strides[i];
  CUtensorMap encoded{};
  const CUresult result =
      encoder(&encoded, detail::data_type(shape.element_bytes), static_cast<cuuint32_t>(shape.rank),
              const_cast<void*>(shape.base), sizes.data(), strides.data(), shape.box.data(),
              kEveryElement.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
              static_cast<CUtensorMapSwizzle>(shape.swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return {fp8_sdpa::StatusCode::kDeviceError,
            "cuTensorMapEncodeTiled refuses a tensor map: CUresult " +
                std::to_string(static_cast<int>(result))};
  }
  std::memcpy(map.bytes.data(), &encoded, sizeof encoded);
#else
  host::encode_tensor_map(shape, map);
#endif
  return {};
}

}  // namespace GPU_BACKEND
}  // namespace gpu
