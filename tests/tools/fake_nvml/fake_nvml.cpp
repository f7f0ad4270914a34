// A library with NVML's names, for machines without it: one device, at 0000:01:00.0, slowed down by
// its power cap. Signatures as in nvml.h.
#include <cstdio>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr unsigned kClockSm = 1;
int initialised = 0;
int device = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++initialised;
  return kSuccess;
}

int nvmlShutdown() {
  --initialised;
  return kSuccess;
}

/// Not NVML's: how many sessions are open.
int fake_nvml_sessions() { return initialised; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** handle) {
  if (initialised == 0) return kUninitialized;
  if (std::strcmp(bus_id, "0000:01:00.0") != 0) return kInvalidArgument;
  *handle = &device;
  return kSuccess;
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::snprintf(version, length, "1.2.3");
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void*, unsigned domain, unsigned* mhz) {
  *mhz = domain == kClockSm ? 1500 : 3000;
  return kSuccess;
}

int nvmlDeviceGetMaxClockInfo(void*, unsigned domain, unsigned* mhz) {
  if (domain != kClockSm) return kInvalidArgument;
  *mhz = 1980;
  return kSuccess;
}

int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700500;
  return kSuccess;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 4;
  return kSuccess;
}

}  // extern "C"
