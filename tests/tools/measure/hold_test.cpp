// Timing behind a held stream: that a hold ends, that a sample is taken anew where the host was too
// slow, and, where a GPU is, that the launch's own time is left out.
#include "benchmarks/measure/hold.hpp"

#include <gtest/gtest.h>

#include <string>

#include "benchmarks/measure/timer.hpp"
#include "benchmarks/run/goal_shapes.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {
namespace {

/// A clock that goes on by `step` each time that it is read, from just before it wraps around.
struct DeviceClock {
  std::uint64_t step;
  std::uint64_t now = ~std::uint64_t{0} - 25;
  int reads = 0;
  std::uint64_t operator()() {
    ++reads;
    return now += step;
  }
};

TEST(WaitReleased, EndsWithTheReleaseOrTheLimit) {
  DeviceClock clock{10};
  const auto now = [&] { return clock(); };
  int looks = 0;
  EXPECT_TRUE(wait_released([&] { return ++looks == 5; }, now, 1000));
  EXPECT_EQ(looks, 5);
  clock.reads = 0;
  EXPECT_FALSE(wait_released([] { return false; }, now, 100));
  EXPECT_EQ(clock.reads, 11);  // the start, and ten steps of ten
  // What comes with the last look counts.
  looks = 0;
  EXPECT_TRUE(wait_released([&] { return ++looks == 2; }, now, 1));
}

TEST(QueueHeld, TriesAgainAndGivesUp) {
  int tries = 0;
  EXPECT_TRUE(queue_held([&]() -> Result<bool> { return ++tries == 3; }).ok());
  EXPECT_EQ(tries, 3);
  tries = 0;
  const Status never = queue_held([&]() -> Result<bool> {
    ++tries;
    return false;
  });
  EXPECT_EQ(tries, kHoldTries);
  EXPECT_EQ(never.code(), StatusCode::kDeviceError);
  EXPECT_NE(never.message().find("too slow"), std::string::npos);
  tries = 0;
  const Status error = queue_held([&]() -> Result<bool> {
    ++tries;
    return Status(StatusCode::kDeviceError, "no launch");
  });
  EXPECT_EQ(tries, 1);
  EXPECT_EQ(error.message(), "no launch");
}

TEST(TimerOnDevice, QueuedLaunchesAreShorterThanSingleOnes) {
  const auto device = current_device();
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const auto data = reference::make_case(shape_of({"small", 1, 1, 32, 64}, Mask::kNone), 0);
  const auto workload = Workload::make(*data, *device, Dtype::kBFloat16);
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  const auto planned = plan(workload->problem(), *device);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  const auto judged = workload->run(*planned);
  ASSERT_TRUE(judged.ok()) << judged.status().message();
  const auto p50 = [&](Method method) {
    const auto samples = time_launches(*planned, method, 100, 300);
    EXPECT_TRUE(samples.ok()) << samples.status().message();
    EXPECT_TRUE(workload->output().ok() && *workload->output() == *judged) << name_of(method);
    return samples.ok() ? summarise(*samples).p50 : 0.0;
  };
  const double single = p50(Method::kEventsWarm);
  const double queued = p50(Method::kQueuedWarm);
  EXPECT_GT(queued, 0.0);
  EXPECT_LT(queued, single);
  // Inputs that are not in L2 take no less time.
  EXPECT_GT(p50(Method::kQueuedRotating), 0.9 * queued);
}

}  // namespace
}  // namespace fp8_sdpa::bench
