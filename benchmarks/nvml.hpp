// Clocks, power limit and driver version, from the NVIDIA Management Library where it can be
// loaded.
#pragma once

#include <optional>
#include <string>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// What NVML says of one device. A value that it does not give is empty.
struct NvmlReport {
  std::optional<std::string> driver_version;  ///< such as "580.65.06"
  std::optional<int> sm_clock_mhz;
  std::optional<int> sm_clock_max_mhz;
  std::optional<int> memory_clock_mhz;
  std::optional<int> memory_clock_max_mhz;
  std::optional<double> power_limit_watts;  ///< the enforced limit
};

/// Asks NVML about the device at this PCI bus id ("0000:01:00.0"). The library is loaded when this
/// is called, never linked: kUnsupported, with the reason, on a machine without it.
Result<NvmlReport> query_nvml(const std::string& pci_bus_id);

}  // namespace fp8_sdpa::bench
