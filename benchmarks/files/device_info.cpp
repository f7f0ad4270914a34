#include "benchmarks/files/device_info.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime_api.h>

#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::bench {
namespace {

template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

std::string cuda_version_text(int version) {
  constexpr int kMajor = 1000;
  constexpr int kMinor = 10;
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / kMinor);
}

#if FP8_SDPA_HAS_DEVICE
Result<DeviceInfo> describe(const Device& device) {
  if (device.backend != Backend::kDevice) return unsupported("the host executor is no CUDA device");
  DeviceInfo info;
  info.name = device.name;
  info.sm_version = device.sm_version;
  info.sm_count = device.sm_count;
  int runtime = 0;
  int driver = 0;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaRuntimeGetVersion(&runtime));
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaDriverGetVersion(&driver));
  info.cuda_version = cuda_version_text(runtime);
  info.cuda_driver_version = cuda_version_text(driver);
  if (const auto nvml = Nvml::open(device); nvml.ok()) {
    info.nvml = nvml->report();
  } else {
    info.note = "no clocks, power limit and driver version: " + nvml.status().message();
  }
  return info;
}
#else
Result<DeviceInfo> describe(const Device&) { return unsupported("this build has no device code"); }
#endif

nlohmann::json to_json(const DeviceInfo& info) {
  nlohmann::json json = {
      {"name", info.name},
      {"cuda_version", info.cuda_version},
      {"cuda_driver_version", info.cuda_driver_version},
      {"driver_version", or_null(info.nvml.driver_version)},
      {"sm_version", info.sm_version},
      {"sm_count", info.sm_count},
      {"clocks",
       {{"sm_mhz", or_null(info.nvml.sm_clock_mhz)},
        {"sm_max_mhz", or_null(info.nvml.sm_clock_max_mhz)},
        {"memory_mhz", or_null(info.nvml.memory_clock_mhz)},
        {"memory_max_mhz", or_null(info.nvml.memory_clock_max_mhz)}}},
      {"power_limit_watts", or_null(info.nvml.power_limit_watts)},
  };
  if (!info.note.empty()) json["note"] = info.note;
  return json;
}

}  // namespace fp8_sdpa::bench
