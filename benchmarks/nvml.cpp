#include "benchmarks/nvml.hpp"

#include <dlfcn.h>

#include <array>
#include <memory>

namespace fp8_sdpa::bench {
namespace {

// The part of nvml.h that is used here (NVML API reference, "Device Queries"). Declared by hand
// because the header is not in every CUDA toolkit package, and the ABI is stable.
constexpr int kNvmlSuccess = 0;
constexpr unsigned kNvmlClockSm = 1;
constexpr unsigned kNvmlClockMemory = 2;
constexpr std::size_t kNvmlVersionBytes = 80;
using NvmlDevice = struct nvmlDevice_st*;

struct CloseLibrary {
  void operator()(void* handle) const { dlclose(handle); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <class Function>
Function* symbol(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

std::optional<int> clock(const Library& library, const char* function, NvmlDevice device,
                         unsigned domain) {
  const auto query = symbol<int(NvmlDevice, unsigned, unsigned*)>(library, function);
  unsigned mhz = 0;
  if (query == nullptr || query(device, domain, &mhz) != kNvmlSuccess) return std::nullopt;
  return static_cast<int>(mhz);
}

NvmlReport read_report(const Library& library, NvmlDevice device) {
  NvmlReport report;
  if (const auto query = symbol<int(char*, unsigned)>(library, "nvmlSystemGetDriverVersion")) {
    std::array<char, kNvmlVersionBytes> version{};
    if (query(version.data(), version.size()) == kNvmlSuccess)
      report.driver_version = version.data();
  }
  report.sm_clock_mhz = clock(library, "nvmlDeviceGetClockInfo", device, kNvmlClockSm);
  report.sm_clock_max_mhz = clock(library, "nvmlDeviceGetMaxClockInfo", device, kNvmlClockSm);
  report.memory_clock_mhz = clock(library, "nvmlDeviceGetClockInfo", device, kNvmlClockMemory);
  report.memory_clock_max_mhz =
      clock(library, "nvmlDeviceGetMaxClockInfo", device, kNvmlClockMemory);
  if (const auto query =
          symbol<int(NvmlDevice, unsigned*)>(library, "nvmlDeviceGetEnforcedPowerLimit")) {
    constexpr double kMilliwattsPerWatt = 1000.0;
    unsigned milliwatts = 0;
    if (query(device, &milliwatts) == kNvmlSuccess) {
      report.power_limit_watts = milliwatts / kMilliwattsPerWatt;
    }
  }
  return report;
}

}  // namespace

Result<NvmlReport> query_nvml(const std::string& pci_bus_id) {
  const Library library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return unsupported("libnvidia-ml.so.1 cannot be loaded");
  const auto initialise = symbol<int()>(library, "nvmlInit_v2");
  const auto shut_down = symbol<int()>(library, "nvmlShutdown");
  const auto by_bus_id =
      symbol<int(const char*, NvmlDevice*)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  if (initialise == nullptr || shut_down == nullptr || by_bus_id == nullptr) {
    return unsupported("libnvidia-ml.so.1 lacks nvmlInit_v2 or its companions");
  }
  if (const int error = initialise(); error != kNvmlSuccess) {
    return unsupported("nvmlInit_v2 failed with error " + std::to_string(error));
  }
  NvmlDevice device = nullptr;
  const int error = by_bus_id(pci_bus_id.c_str(), &device);
  const NvmlReport report = error == kNvmlSuccess ? read_report(library, device) : NvmlReport{};
  shut_down();
  if (error != kNvmlSuccess) {
    return unsupported("NVML does not know the device at " + pci_bus_id + ": error " +
                       std::to_string(error));
  }
  return report;
}

}  // namespace fp8_sdpa::bench
