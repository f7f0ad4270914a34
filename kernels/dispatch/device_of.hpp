// What the library knows of a CUDA device, from what CUDA says of it.
#pragma once

#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime_api.h>

#include "fp8_sdpa/device.hpp"

namespace fp8_sdpa::detail {

/// Of ordinal `index`.
Device device_of(int index, const cudaDeviceProp& properties);

}  // namespace fp8_sdpa::detail
#endif
