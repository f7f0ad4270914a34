// Each property of a GPU goes where it belongs, told from the others without a GPU.
#include "dispatch/device_of.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "fp8_sdpa/device.hpp"

namespace fp8_sdpa {
namespace {

// It has the limits of an sm_90.
TEST(HostExecutor, SaysWhatItIs) {
  const Device device = host_executor();
  EXPECT_EQ(device.backend, Backend::kHost);
  EXPECT_EQ(device.sm_version, 90);
  EXPECT_EQ(device.sm_count, 1);
  EXPECT_EQ(device.shared_memory_per_block, std::size_t{227 << 10});
  EXPECT_EQ(device.name, "host executor");
}

#if FP8_SDPA_HAS_DEVICE
TEST(DeviceOf, HasEachPropertyInItsPlace) {
  cudaDeviceProp properties{};
  std::strcpy(properties.name, "made-up");
  properties.major = 9;
  properties.minor = 3;
  properties.multiProcessorCount = 132;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerMultiprocessor = 228 << 10;
  properties.sharedMemPerBlockOptin = 227 << 10;
  const Device device = detail::device_of(5, properties);
  EXPECT_EQ(device.backend, Backend::kDevice);
  EXPECT_EQ(device.index, 5);
  EXPECT_EQ(device.sm_version, 93);
  EXPECT_EQ(device.sm_count, 132);
  EXPECT_EQ(device.shared_memory_per_block, std::size_t{227 << 10});
  EXPECT_EQ(device.name, "made-up");
}

#endif

}  // namespace
}  // namespace fp8_sdpa
