// Every primitive against an expectation of its own, and the host executor against the device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "tests/gpu_model/conformance/cases.hpp"
#include "tests/gpu_model/support.hpp"

namespace conformance {
namespace {

class Conformance : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Primitives, Conformance, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<std::byte> host_output(const Case& c, const fp8_sdpa::ExecutorOptions& options) {
  std::vector<std::byte> out(c.out_bytes, std::byte{0xff});
  const auto status = run_on_host({c.primitive, c.in, out, c.count}, options);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

TEST_P(Conformance, HostGivesWhatIsExpected) {
  const Case& c = GetParam();
  EXPECT_EQ(c.check(host_output(c, {})), "");
}

TEST_P(Conformance, HostGivesTheSameUnderEverySchedule) {
  const Case& c = GetParam();
  const auto first = host_output(c, {});
  // The threads of an element-wise kernel have nothing to do with each other: one order is enough.
  const auto orders =
      c.count > 0
          ? std::vector<fp8_sdpa::ExecutorOptions>{{.schedule = fp8_sdpa::Schedule::kRandom}}
          : gpu_model::adversaries(10);
  for (const auto& options : orders) {
    EXPECT_EQ(host_output(c, options), first)
        << "schedule " << static_cast<int>(options.schedule) << " seed " << options.seed;
  }
}

TEST_P(Conformance, DeviceAgreesWithHost) {
  const Case& c = GetParam();
  if (const std::string why = why_no_device(); !why.empty()) {
    const char* require = std::getenv("SDPA_REQUIRE_GPU");
    if (require != nullptr && std::string(require) == "1") {
      FAIL() << "SDPA_REQUIRE_GPU=1, but " << why;
    }
    GTEST_SKIP() << "device half skipped: " << why;
  }
  const auto device = fp8_sdpa::current_device();
  ASSERT_TRUE(device.ok()) << device.status().message();
  const bool too_new = c.only_sm_90a && device->sm_version > c.min_sm_version;
  if (device->sm_version < c.min_sm_version || too_new) {
    GTEST_SKIP() << "device half skipped: " << c.name << " needs sm_" << c.min_sm_version
                 << (c.only_sm_90a ? "a, " : " or newer, ") << device->name << " is sm_"
                 << device->sm_version;
  }
  std::vector<std::byte> out(c.out_bytes);
  const auto status = run_on_device({c.primitive, c.in, out, c.count});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(c.check(out), "");
  EXPECT_EQ(c.compare(host_output(c, {}), out), "");
}

/// What a primitive prints on stdout.
template <class RunIt>
std::string printed(RunIt run_it) {
  testing::internal::CaptureStdout();
  const fp8_sdpa::Status status = run_it();
  std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

TEST(Print, WritesALineOnBothBackends) {
  const std::vector<std::byte> in(1);
  std::vector<std::byte> out(1);
  const Request request{Primitive::kPrint, in, out};
  const std::string expected = "thread 7: 0.25\n";
  EXPECT_EQ(printed([&] { return run_on_host(request, {}); }), expected);
  if (why_no_device().empty()) {
    EXPECT_EQ(printed([&] { return run_on_device(request); }), expected);
  }
}

}  // namespace
}  // namespace conformance
