// The device of a run, as result files and benchmark contexts describe it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "benchmarks/measure/nvml.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// One CUDA device and the software that drives it.
struct DeviceInfo {
  std::string name;
  std::string cuda_version;         ///< of the runtime that this build uses, such as "13.0"
  std::string cuda_driver_version;  ///< the newest CUDA that the driver serves
  int sm_version = 0;               ///< 10 * major + minor
  int sm_count = 0;
  NvmlReport nvml;
  std::string note;  ///< what could not be read, and why; empty where all could
};

/// "13.0" of 13000, as CUDA numbers its versions.
std::string cuda_version_text(int version);

/// Describes a device. kUnsupported for the host executor, kDeviceError where a CUDA call fails;
/// missing NVML is no error, but a note.
Result<DeviceInfo> describe(const Device& device);

/// The `device` object of a result file; what could not be read is null.
nlohmann::json to_json(const DeviceInfo& info);

}  // namespace fp8_sdpa::bench
