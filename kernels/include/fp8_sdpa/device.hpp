// Where a kernel runs: a CUDA device, or the host executor that plays the CUDA programming model on
// the CPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fp8_sdpa/status.hpp"
#include "gpu/types.hpp"  // IWYU pragma: export

namespace fp8_sdpa {

struct ExecutorOptions;

/// A place to run kernels, and its limits.
struct Device {
  Backend backend = Backend::kHost;
  int index = 0;       ///< CUDA device ordinal
  int sm_version = 0;  ///< compute capability as 10 * major + minor
  int sm_count = 0;
  std::size_t shared_memory_per_block = 0;  ///< bytes a block may opt in to
  std::string name;
  /// How Backend::kHost plays a launch, for this library's own tests; null: in its fastest order.
  std::shared_ptr<const ExecutorOptions> executor;
};

/// The host executor, as a device that can run every variant.
Device host_executor();

/// The calling thread's current CUDA device. kUnsupported, with the reason, where there is none or
/// this build has no device code; kDeviceError where a CUDA call fails.
Result<Device> current_device();

}  // namespace fp8_sdpa
