// Clocks from NVML, where it is and where it is not.
#include "benchmarks/measure/nvml.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace fp8_sdpa::bench {
namespace {

constexpr const char* kBusId = "0000:01:00.0";

TEST(NvmlSession, ReadsWhatTheLibrarySays) {
  const auto nvml = Nvml::open(kBusId, FP8_SDPA_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status().message();
  const NvmlReport report = nvml->report();
  EXPECT_EQ(report.driver_version, "1.2.3");
  EXPECT_EQ(report.sm_clock_mhz, 1500);
  EXPECT_EQ(report.sm_clock_max_mhz, 1980);
  EXPECT_EQ(report.memory_clock_mhz, 3000);
  EXPECT_EQ(report.memory_clock_max_mhz, std::nullopt) << "refused by the library";
  EXPECT_EQ(report.power_limit_watts, 700.5);
  const ClockReading clocks = nvml->read_clocks();
  EXPECT_EQ(clocks.sm_clock_mhz, 1500);
  EXPECT_EQ(clocks.throttle_reasons, 4U) << "by the function's older name";
}

TEST(NvmlSession, ClosesWhatItOpened) {
  void* library = dlopen(FP8_SDPA_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto sessions = reinterpret_cast<int (*)()>(dlsym(library, "fake_nvml_sessions"));
  ASSERT_NE(sessions, nullptr);
  {
    auto nvml = Nvml::open(kBusId, FP8_SDPA_FAKE_NVML);
    EXPECT_EQ(sessions(), 1);
    const Nvml moved = std::move(*nvml);
    EXPECT_EQ(sessions(), 1);
    EXPECT_FALSE(Nvml::open("0000:02:00.0", FP8_SDPA_FAKE_NVML).ok());
    EXPECT_EQ(sessions(), 1);
  }
  EXPECT_EQ(sessions(), 0);
  dlclose(library);
}

TEST(NvmlSession, SaysInOneLineWhatIsMissing) {
  EXPECT_EQ(Nvml::open(kBusId, "libno-such-nvml.so.1").status().message(),
            "libno-such-nvml.so.1 cannot be loaded");
  EXPECT_EQ(Nvml::open("0000:02:00.0", FP8_SDPA_FAKE_NVML).status().message(),
            "NVML does not know the device at 0000:02:00.0: error 2");
  EXPECT_EQ(Nvml::open(kBusId, "libm.so.6").status().message(),
            "libm.so.6 lacks nvmlInit_v2 or its companions");
  EXPECT_FALSE(Nvml::open(host_executor()).ok());
}

}  // namespace
}  // namespace fp8_sdpa::bench
