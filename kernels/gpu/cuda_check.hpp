// CUDA runtime errors as Status. Needs the CUDA runtime's headers, not nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "gpu/types.hpp"

namespace gpu {

/// Success, or kDeviceError (kOutOfMemory for a failed allocation) with file, line, expression and
/// CUDA's own words. Takes a non-sticky error out of the runtime, so that it is reported once.
inline fp8_sdpa::Status cuda_status(cudaError_t error, const char* expression, const char* file,
                                    int line) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  const auto code = error == cudaErrorMemoryAllocation ? fp8_sdpa::StatusCode::kOutOfMemory
                                                       : fp8_sdpa::StatusCode::kDeviceError;
  return {code, std::string(file) + ":" + std::to_string(line) + ": " + expression + ": " +
                    cudaGetErrorName(error) + ": " + cudaGetErrorString(error)};
}

}  // namespace gpu

/// The Status of a CUDA runtime call.
#define FP8_SDPA_CUDA_STATUS(expression) \
  ::gpu::cuda_status((expression), #expression, __FILE__, __LINE__)

/// Makes a CUDA runtime call, and returns its Status from the enclosing function if it failed.
#define FP8_SDPA_RETURN_IF_CUDA_ERROR(expression)                                           \
  do {                                                                                      \
    if (auto cuda_call_status = FP8_SDPA_CUDA_STATUS(expression); !cuda_call_status.ok()) { \
      return cuda_call_status;                                                              \
    }                                                                                       \
  } while (false)
