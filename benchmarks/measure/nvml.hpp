// Clocks, throttle reasons, power limit and driver version, from the NVIDIA Management Library
// where it can be loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "benchmarks/statistics/repetitions.hpp"
#include "fp8_sdpa/device.hpp"
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

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// NVML, opened for one device. The library is loaded when this is made, never linked.
class Nvml {
 public:
  /// The device at this PCI bus id ("0000:01:00.0"). kUnsupported, with the reason, on a machine
  /// without the library.
  static Result<Nvml> open(const std::string& pci_bus_id, const char* library = kNvmlLibrary);
  /// The same of a CUDA device. kUnsupported for the host executor.
  static Result<Nvml> open(const Device& device);

  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  NvmlReport report() const;
  /// The SM clock and why it is not higher, now.
  ClockReading read_clocks() const;

 private:
  struct Impl;
  explicit Nvml(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fp8_sdpa::bench
