// The roofline: a time that cannot be is an error.
#include "benchmarks/measure/roofline.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "benchmarks/measure/timing.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

reference::Shape rectangle(std::int64_t seq_q, std::int64_t seq_kv, int head_dim, Mask mask) {
  reference::Shape shape;
  shape.name = "shape";
  shape.batch = 2;
  shape.heads_q = 8;
  shape.heads_kv = 4;
  shape.seq_q = seq_q;
  shape.seq_kv = seq_kv;
  shape.head_dim = head_dim;
  shape.mask = mask;
  return shape;
}

TEST(Roofline, CountsPairsAsTheMaskLeavesThem) {
  for (const auto& [rows, keys] : {std::pair{5, 5}, {3, 7}, {7, 3}, {1, 9}, {9, 1}}) {
    int pairs = 0;
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < keys; ++j) pairs += j <= i + keys - rows;
    }
    EXPECT_EQ(attended_pairs(rectangle(rows, keys, 64, Mask::kCausal)), 16.0 * pairs);
    EXPECT_EQ(attended_pairs(rectangle(rows, keys, 64, Mask::kNone)), 16.0 * rows * keys);
  }
}

TEST(Roofline, KnowsItsDevicesByWholeWords) {
  ASSERT_NE(find_limits("NVIDIA H200"), nullptr);
  EXPECT_EQ(find_limits("NVIDIA H200")->name, "H200");
  EXPECT_EQ(find_limits("NVIDIA H100 80GB HBM3")->name, "H100");
  EXPECT_EQ(find_limits("NVIDIA H100 PCIe")->name, "H100 PCIe");
  EXPECT_EQ(find_limits("NVIDIA L4")->name, "L4");
  EXPECT_EQ(find_limits("NVIDIA L40S")->name, "L40S");
  for (const char* other : {"NVIDIA GH200 480GB", "NVIDIA A100", "NVIDIA L400", ""}) {
    EXPECT_EQ(find_limits(other), nullptr) << other;
  }
}

TEST(Roofline, IsThePublishedPeakAtTheBoostClock) {
  // 1978.9 TFLOPS on an H100 SXM5 at 1830 MHz; 242.5 on an L4 at 2040 MHz.
  const reference::Shape shape = rectangle(4096, 4096, 128, Mask::kNone);
  const double flop = 4.0 * 16 * 4096 * 4096 * 128;
  const Roofline hopper =
      roofline(*find_limits("NVIDIA H100 80GB HBM3"), 132, shape, Method::kEventsWarm, 1830.0);
  EXPECT_NEAR(flop / hopper.flop_us / 1e6, 1978.9, 1);
  const Roofline ada = roofline(*find_limits("NVIDIA L4"), 58, shape, Method::kEventsWarm, 2040.0);
  EXPECT_NEAR(flop / ada.flop_us / 1e6, 242.5, 1);
  // Half the clock, twice the time; no clock known, the device's highest.
  const Roofline slow = roofline(*find_limits("NVIDIA L4"), 58, shape, Method::kEventsWarm, 1020.0);
  EXPECT_NEAR(slow.flop_us, 2 * ada.flop_us, 1e-9);
  EXPECT_EQ(roofline(*find_limits("NVIDIA H200"), 132, shape, Method::kGraphWarm, {}).clock_mhz,
            1980);
}

TEST(Roofline, CountsBytesThatMustComeFromDram) {
  const DeviceLimits& limits = *find_limits("NVIDIA H200");
  const reference::Shape small = rectangle(512, 512, 64, Mask::kNone);
  EXPECT_EQ(roofline(limits, 132, small, Method::kEventsWarm, {}).bytes_us, 0) << "all in L2";
  // Q of 2 * 8 heads, K and V of 2 * 4: 16 + 8 + 8 times 512 * 64 bytes.
  EXPECT_NEAR(roofline(limits, 132, small, Method::kEventsCold, {}).bytes_us,
              32 * 512 * 64 / 4.8e12 * 1e6, 1e-9);
  EXPECT_NEAR(roofline(limits, 132, small, Method::kQueuedRotating, {}).bytes_us,
              32 * 512 * 64 / 4.8e12 * 1e6 / 2, 1e-9);
  const reference::Shape large = rectangle(65536, 65536, 64, Mask::kNone);
  EXPECT_NEAR(roofline(limits, 132, large, Method::kEventsWarm, {}).bytes_us,
              (32.0 * 65536 * 64 - 50.0 * 1024 * 1024) / 4.8e12 * 1e6, 1e-9);
}

PerfRecord timed(const std::string& variant, double us, Method method = Method::kEventsWarm) {
  PerfRecord record{rectangle(4096, 4096, 128, Mask::kNone),
                    0,
                    variant,
                    method,
                    100,
                    std::vector<double>(20, us),
                    true,
                    split_into_repetitions(20)};
  for (Repetition& repetition : record.repetitions) repetition.clocks.sm_clock_mhz = 1755;
  return record;
}

TEST(Roofline, ATimeAboveItIsAnError) {
  // 4 * 16 * 4096^2 * 128 FLOP / (8192 * 132 * 1755 MHz) = 72.422 us.
  const Status below = check_roofline(timed("quick", 72.4), made_gpu());
  EXPECT_EQ(below.code(), StatusCode::kExecutorError);
  EXPECT_EQ(below.message(),
            "quick on shape by events_l2_warm: p50 = 72.400 us is above the roofline of NVIDIA "
            "H200: its FLOP alone take 72.422 us at 1755 MHz");
  EXPECT_TRUE(check_roofline(timed("good", 72.5), made_gpu()).ok());
  Device unknown = made_gpu();
  unknown.name = "NVIDIA X9";
  EXPECT_TRUE(check_roofline(timed("quick", 1), unknown).ok());
  EXPECT_EQ(roofline_note(unknown),
            "NVIDIA X9 is not in the table of limits: results are not judged by the roofline");
  EXPECT_EQ(roofline_note(made_gpu()), "");
}

TEST(Roofline, AnImpossibleVariantIsNoRecord) {
  Variant quick;
  quick.name = "quick";
  Variant good;
  good.name = "good";
  TimingResults results;
  results.records = {timed("quick", 100), timed("good", 100),
                     timed("quick", 10, Method::kGraphWarm), timed("good", 90, Method::kGraphWarm)};
  reject_above_roofline({{&quick, nullptr}, {&good, nullptr}}, made_gpu(), results);
  ASSERT_EQ(results.failed.size(), 1U);
  EXPECT_EQ(results.failed[0].first, &quick);
  EXPECT_NE(
      results.failed[0].second.message().find("quick on shape by graph_l2_warm: p50 = 10.000"),
      std::string::npos);
  ASSERT_EQ(results.records.size(), 2U) << "none of its records stays";
  for (const PerfRecord& record : results.records) EXPECT_EQ(record.variant, "good");
}

}  // namespace
}  // namespace fp8_sdpa::bench
