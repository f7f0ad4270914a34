// Which architectures this build has device code for.
#pragma once

#include <string>
#include <string_view>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::detail {

/// Device code of a build: "80-real,89-virtual,90a-real", as CMAKE_CUDA_ARCHITECTURES names them.
/// Machine code serves the devices of its major version from its minor version on; PTX (-virtual)
/// every newer one; either, with an "a", the very version alone.
struct CompiledArchs {
  std::string_view list;

  /// The architecture, as 10 * major + minor, whose code a device of version `sm` runs: machine
  /// code before PTX, newer before older. 0 where there is none.
  int code_for(int sm) const;
};

/// Of this build. Empty in a build without device code.
CompiledArchs compiled_archs();

/// Whether this build has code of `name`, a kernel of sm_`least` and newer, for the device;
/// kUnsupported with the reason. Every build with a host executor has all code for it.
Status check_has_code(const std::string& name, int least, const Device& device);

/// launch.operator()<the device's backend>(); kUnsupported where this build has no code for it.
template <class Launch>
Status on_backend_of(const Device& device, const Launch& launch) {
#if FP8_SDPA_HAS_DEVICE
  if (device.backend == Backend::kDevice) return launch.template operator()<Backend::kDevice>();
#endif
#if FP8_SDPA_HAS_HOST
  if (device.backend == Backend::kHost) return launch.template operator()<Backend::kHost>();
#endif
  return unsupported("this build has no code for " + device.name);
}

}  // namespace fp8_sdpa::detail
