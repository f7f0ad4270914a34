// The order in which variants are sampled.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "benchmarks/measure/interleave.hpp"

namespace fp8_sdpa::bench {
namespace {

TEST(Interleave, EveryRoundHasEveryVariantOnce) {
  constexpr int kCount = 5;
  constexpr int kRounds = 200;
  const auto order = interleaved_order(kCount, kRounds, 1);
  ASSERT_EQ(order.size(), static_cast<std::size_t>(kCount * kRounds));
  std::map<int, int> first;
  for (int r = 0; r < kRounds; ++r) {
    std::vector<int> round(order.begin() + r * kCount, order.begin() + (r + 1) * kCount);
    ++first[round.front()];
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, (std::vector<int>{0, 1, 2, 3, 4}));
  }
  // 200 / 5 = 40 each, give or take: five standard deviations are 28.
  for (int i = 0; i < kCount; ++i) EXPECT_NEAR(first[i], 40, 28) << i;
}

TEST(Interleave, TheSeedMakesTheOrder) {
  EXPECT_EQ(interleaved_order(7, 50, 3), interleaved_order(7, 50, 3));
  EXPECT_NE(interleaved_order(7, 50, 3), interleaved_order(7, 50, 4));
  EXPECT_EQ(interleaved_order(1, 3, 0), (std::vector<int>{0, 0, 0}));
  EXPECT_TRUE(interleaved_order(0, 3, 0).empty());
}

TEST(Interleave, SamplesGoToTheirVariants) {
  std::vector<int> asked;
  const auto taken = sample_interleaved(3, 4, 9, [&](int index) -> Result<double> {
    asked.push_back(index);
    return 10.0 * index;
  });
  ASSERT_TRUE(taken.status.ok());
  EXPECT_EQ(asked, interleaved_order(3, 4, 9));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(taken.samples_us[static_cast<std::size_t>(i)], std::vector<double>(4, 10.0 * i));
  }
}

TEST(Interleave, EndsWithTheVariantThatFails) {
  int calls = 0;
  const auto taken = sample_interleaved(3, 4, 9, [&](int index) -> Result<double> {
    ++calls;
    if (index == 2) return Status{StatusCode::kDeviceError, "lost"};
    return 1.0;
  });
  EXPECT_EQ(taken.failed, 2);
  EXPECT_EQ(taken.status.message(), "lost");
  EXPECT_LE(calls, 3);
}

}  // namespace
}  // namespace fp8_sdpa::bench
