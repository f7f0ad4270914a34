#include "benchmarks/command/device_choice.hpp"

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

Result<DeviceChoice> choose_device(const std::string& backend, const Result<Device>& gpu,
                                   const Environment& environment) {
  const char* value = environment("SDPA_REQUIRE_GPU");
  const std::string required = value == nullptr ? "" : value;
  if (!required.empty() && required != "0" && required != "1") {
    return invalid_argument("environment variable SDPA_REQUIRE_GPU=\"" +
                            reference::one_line(required) + "\": expected 0 or 1");
  }
  const bool gpu_required = required == "1";
  if (backend == "host") {
    if (gpu_required) {
      return invalid_argument("SDPA_REQUIRE_GPU=1 and --backend host contradict each other");
    }
    return DeviceChoice{host_executor(), "the host executor was asked for"};
  }
  if (gpu.ok()) return DeviceChoice{*gpu, ""};
  if (gpu.status().code() != StatusCode::kUnsupported) return gpu.status();
  if (backend == "device") return unsupported("--backend device: " + gpu.status().message());
  if (gpu_required) {
    return unsupported("SDPA_REQUIRE_GPU=1: " + gpu.status().message());
  }
  return DeviceChoice{host_executor(), gpu.status().message()};
}

Status require_gpu(const DeviceChoice& choice) {
  if (choice.device.backend == Backend::kDevice) return {};
  return unsupported("nothing is measured: a GPU is missing (" + choice.no_gpu_reason + ")");
}

Result<Device> the_gpu(const Environment& environment) {
  const auto choice = choose_device("auto", current_device(), environment);
  if (!choice.ok()) return choice.status();
  if (Status s = require_gpu(*choice); !s.ok()) return s;
  return choice->device;
}

}  // namespace fp8_sdpa::bench
