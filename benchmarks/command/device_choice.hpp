// Which backend a run uses.
#pragma once

#include <string>

#include "benchmarks/command/selection.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// The device of a run, and, where it is the host executor for want of a GPU, the reason.
struct DeviceChoice {
  Device device;
  std::string no_gpu_reason;  ///< empty on a GPU
};

/// Picks the device for "auto" (the GPU where there is one), "device" or "host". `gpu` is what
/// current_device() said. kUnsupported where a GPU is asked for, by `backend` or by
/// SDPA_REQUIRE_GPU=1, and there is none; a CUDA error is passed on, never taken for "no GPU".
/// kInvalidArgument where SDPA_REQUIRE_GPU is neither 0 nor 1.
Result<DeviceChoice> choose_device(const std::string& backend, const Result<Device>& gpu,
                                   const Environment& environment);

/// kUnsupported where the choice is the host executor, for a tool whose times are a GPU's.
Status require_gpu(const DeviceChoice& choice);

/// The GPU of such a tool, which takes no --backend.
Result<Device> the_gpu(const Environment& environment);

}  // namespace fp8_sdpa::bench
