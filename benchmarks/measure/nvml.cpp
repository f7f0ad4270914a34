#include "benchmarks/measure/nvml.hpp"

#include <dlfcn.h>

#include <array>
#include <memory>
#include <utility>

#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime_api.h>

#include "gpu/cuda_check.hpp"
#endif

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

struct Nvml::Impl {
  Library library;
  NvmlDevice device = nullptr;
  int (*shut_down)() = nullptr;
  int (*throttle_reasons)(NvmlDevice, unsigned long long*) = nullptr;

  ~Impl() { shut_down(); }
};

Nvml::Nvml(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::open(const std::string& pci_bus_id, const char* name) {
  Library library(dlopen(name, RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return unsupported(std::string(name) + " cannot be loaded");
  const auto initialise = symbol<int()>(library, "nvmlInit_v2");
  const auto shut_down = symbol<int()>(library, "nvmlShutdown");
  const auto by_bus_id =
      symbol<int(const char*, NvmlDevice*)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  if (initialise == nullptr || shut_down == nullptr || by_bus_id == nullptr) {
    return unsupported(std::string(name) + " lacks nvmlInit_v2 or its companions");
  }
  if (const int error = initialise(); error != kNvmlSuccess) {
    return unsupported("nvmlInit_v2 failed with error " + std::to_string(error));
  }
  NvmlDevice device = nullptr;
  if (const int error = by_bus_id(pci_bus_id.c_str(), &device); error != kNvmlSuccess) {
    shut_down();
    return unsupported("NVML does not know the device at " + pci_bus_id + ": error " +
                       std::to_string(error));
  }
  // The function's name since R535, and before.
  using Reasons = int(NvmlDevice, unsigned long long*);
  auto* reasons = symbol<Reasons>(library, "nvmlDeviceGetCurrentClocksEventReasons");
  if (reasons == nullptr) {
    reasons = symbol<Reasons>(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  auto impl = std::make_unique<Impl>();
  impl->library = std::move(library);
  impl->device = device;
  impl->shut_down = shut_down;
  impl->throttle_reasons = reasons;
  return Nvml(std::move(impl));
}

#if FP8_SDPA_HAS_DEVICE
Result<Nvml> Nvml::open(const Device& device) {
  if (device.backend != Backend::kDevice) return unsupported("the host executor has no clocks");
  constexpr int kBusIdBytes = 64;
  std::array<char, kBusIdBytes> bus_id{};
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaDeviceGetPCIBusId(bus_id.data(), kBusIdBytes, device.index));
  return open(std::string(bus_id.data()));
}
#else
Result<Nvml> Nvml::open(const Device&) { return unsupported("this build has no device code"); }
#endif

NvmlReport Nvml::report() const { return read_report(impl_->library, impl_->device); }

ClockReading Nvml::read_clocks() const {
  ClockReading reading;
  reading.sm_clock_mhz =
      clock(impl_->library, "nvmlDeviceGetClockInfo", impl_->device, kNvmlClockSm);
  unsigned long long reasons = 0;
  if (impl_->throttle_reasons != nullptr &&
      impl_->throttle_reasons(impl_->device, &reasons) == kNvmlSuccess) {
    reading.throttle_reasons = reasons;
  }
  return reading;
}

}  // namespace fp8_sdpa::bench
