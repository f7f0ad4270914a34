#include "fp8_sdpa/device.hpp"

#include <map>
#include <mutex>
#include <string>

#include "dispatch/device_of.hpp"

namespace fp8_sdpa {

Device host_executor() {
  // The limits of the largest device that a kernel of this library is written for (sm_90).
  constexpr int kSmVersion = 90;
  constexpr std::size_t kSharedMemory = 227 * 1024;
  Device device;
  device.backend = Backend::kHost;
  device.sm_version = kSmVersion;
  device.sm_count = 1;
  device.shared_memory_per_block = kSharedMemory;
  device.name = "host executor";
  return device;
}

#if FP8_SDPA_HAS_DEVICE
Device detail::device_of(int index, const cudaDeviceProp& properties) {
  Device device;
  device.backend = Backend::kDevice;
  device.index = index;
  device.sm_version = 10 * properties.major + properties.minor;
  device.sm_count = properties.multiProcessorCount;
  device.shared_memory_per_block = properties.sharedMemPerBlockOptin;
  device.name = properties.name;
  return device;
}

Result<Device> current_device() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    return unsupported(std::string("no CUDA device: ") +
                       (error == cudaSuccess ? "none found" : cudaGetErrorString(error)));
  }
  int index = 0;
  if (const cudaError_t error = cudaGetDevice(&index); error != cudaSuccess) {
    return Status{StatusCode::kDeviceError,
                  std::string("cudaGetDevice: ") + cudaGetErrorString(error)};
  }
  // A device does not change, and asking takes milliseconds: the convenient forward() calls this
  // before every launch.
  static std::mutex mutex;
  static std::map<int, Device> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(index); found != known.end()) return found->second;
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    return Status{StatusCode::kDeviceError,
                  std::string("cudaGetDeviceProperties: ") + cudaGetErrorString(error)};
  }
  return known.emplace(index, detail::device_of(index, properties)).first->second;
}
#else
Result<Device> current_device() {
  return unsupported("this build has no device code: nvcc was not found when it was configured");
}
#endif

}  // namespace fp8_sdpa
