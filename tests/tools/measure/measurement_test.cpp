// The order of a measurement, on a machine that the test plays; repetitions and their clocks.
#include "benchmarks/measure/measurement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/measure/timing.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {
namespace {

/// Variants whose times and outputs the test makes up.
class PlayedMachine {
 public:
  explicit PlayedMachine(int count) : launches(static_cast<std::size_t>(count)) {
    bench.count = count;
    bench.warm_up = [this](int index, int times) {
      launch(index, times);
      return Status{};
    };
    bench.sample_us = [this](int index) -> Result<double> {
      launch(index, 1);
      ++samples;
      return time_of(index, samples);
    };
    bench.poison = [this] {
      ++poisoned;
      output = -1;
      return Status{};
    };
    bench.check_output = [this](int index) {
      ++looked_at;
      if (output == index) return Status{};
      return Status{StatusCode::kExecutorError, "output differs"};
    };
    bench.read_clocks = [this] { return clocks; };
  }

  Bench bench;
  std::vector<int> launches;
  int samples = 0;
  int poisoned = 0;
  int looked_at = 0;
  ClockReading clocks;
  std::function<double(int index, int sample)> time_of = [](int index, int) {
    return 10.0 + index;
  };
  /// What a launch leaves as the output: its variant, where it is right.
  std::function<int(int index, int launch)> output_of = [](int index, int) { return index; };

 private:
  void launch(int index, int times) {
    launches[static_cast<std::size_t>(index)] += times;
    output = output_of(index, launches[static_cast<std::size_t>(index)]);
  }
  int output = -1;
};

constexpr MeasurementPlan kPlan = {.warmup_iters = 100, .min_samples = 500, .max_samples = 2000};

TEST(Measurement, QuietTimesEndAtTheLeastNumber) {
  PlayedMachine machine(3);
  machine.clocks = {1980, 4};
  const Measured measured = measure(machine.bench, kPlan);
  ASSERT_TRUE(measured.status.ok()) << measured.status.message();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(measured.samples_us[static_cast<std::size_t>(i)], std::vector<double>(500, 10.0 + i));
  }
  ASSERT_EQ(measured.repetitions.size(), 20U);
  int next = 0;
  for (const Repetition& repetition : measured.repetitions) {
    EXPECT_EQ(repetition.first_sample, next);
    EXPECT_EQ(repetition.samples, 25);
    EXPECT_EQ(repetition.clocks.sm_clock_mhz, 1980);
    EXPECT_EQ(repetition.clocks.throttle_reasons, 4U);
    next += repetition.samples;
  }
  // Each variant's output before and after, and what the timing itself left.
  EXPECT_EQ(machine.looked_at, 7);
  EXPECT_EQ(machine.poisoned, 6);
}

TEST(Measurement, NoisyTimesGoOnUntilTheyAreQuietOrThereAreEnough) {
  // Each repetition of 25 all high or all low: 10 % apart, the error falls as 5 % / sqrt(n).
  PlayedMachine noisy(1);
  noisy.time_of = [](int, int sample) { return sample / 25 % 2 == 0 ? 10.0 : 10.5; };
  const Measured more = measure(noisy.bench, kPlan);
  ASSERT_TRUE(more.status.ok());
  EXPECT_GT(more.samples_us[0].size(), 500U);
  EXPECT_LT(more.samples_us[0].size(), 2000U);
  EXPECT_EQ(more.samples_us[0].size(), more.repetitions.size() * 25);
  EXPECT_LE(relative_standard_error(repetition_medians(more.samples_us[0], more.repetitions)),
            kTargetError);

  PlayedMachine wild(2);
  wild.time_of = [](int index, int sample) {
    return index == 1 && sample % 100 < 50 ? 30.0 : 10.0;
  };
  const Measured most = measure(wild.bench, kPlan);
  EXPECT_EQ(most.samples_us[0].size(), 2000U) << "all go on while one is noisy";
  EXPECT_EQ(most.repetitions.size(), 80U);
}

TEST(Measurement, AnAskedNumberIsThatNumber) {
  for (const int asked : {1, 19, 20, 39, 500, 513}) {
    PlayedMachine wild(1);
    wild.time_of = [](int, int sample) { return sample % 2 == 0 ? 30.0 : 10.0; };
    const Measured measured = measure(wild.bench, {.min_samples = asked, .max_samples = asked});
    EXPECT_EQ(measured.samples_us[0].size(), static_cast<std::size_t>(asked));
    EXPECT_EQ(measured.repetitions.size(), static_cast<std::size_t>(std::min(asked, 20)));
  }
}

TEST(Measurement, AnOutputThatIsWrongFromTheStartFailsBeforeTheTiming) {
  PlayedMachine machine(3);
  machine.output_of = [](int index, int) { return index == 1 ? 7 : index; };
  const Measured measured = measure(machine.bench, kPlan);
  EXPECT_EQ(measured.failed, 1);
  EXPECT_EQ(measured.status.message(), "output differs");
  EXPECT_EQ(machine.samples, 2) << "nothing is timed";
}

TEST(Measurement, AnOutputThatChangesUnderTimingFails) {
  // Right for the gates and the first launches; then it skips its work.
  PlayedMachine machine(3);
  machine.output_of = [](int index, int launch) { return index == 2 && launch > 300 ? -1 : index; };
  const Measured measured = measure(machine.bench, kPlan);
  EXPECT_EQ(measured.failed, 2);
  EXPECT_EQ(measured.status.message(), "output differs");
}

TEST(Measurement, AFailedLaunchNamesItsVariant) {
  PlayedMachine machine(2);
  machine.bench.sample_us = [&](int index) -> Result<double> {
    if (index == 1) return Status{StatusCode::kDeviceError, "launch failed"};
    return 1.0;
  };
  machine.bench.check_output = [](int) { return Status{}; };
  const Measured measured = measure(machine.bench, kPlan);
  EXPECT_EQ(measured.failed, 1);
  EXPECT_EQ(measured.status.message(), "launch failed");
}

TEST(Measurement, WarmsUpWhereAsked) {
  PlayedMachine in_turns(2);
  static_cast<void>(
      measure(in_turns.bench,
              {.warmup_iters = 5, .min_samples = 40, .max_samples = 40, .warm_each = true}));
  // Warm-up, two looks, 40 samples with a launch before each, one after each look at the clocks.
  EXPECT_EQ(in_turns.launches[0], 5 + 2 + 80 + 19);
}

TEST(Measurement, OthersTakeTheirTurnAfterEachRepetition) {
  PlayedMachine machine(2);
  machine.clocks.sm_clock_mhz = 1700;
  std::vector<int> turns;
  machine.bench.after_repetition = [&](const Repetition& taken) {
    turns.push_back(taken.first_sample);
    EXPECT_EQ(taken.samples, 2);
    EXPECT_EQ(taken.clocks.sm_clock_mhz, 1700);
    // Both sides of the turn: ours have just been sampled, as often as each other.
    EXPECT_EQ(machine.samples, 2 + 2 * (taken.first_sample + taken.samples));
  };
  static_cast<void>(
      measure(machine.bench, {.warmup_iters = 5, .min_samples = 40, .max_samples = 40}));
  ASSERT_EQ(turns.size(), 20U);
  EXPECT_EQ(turns.front(), 0);
  EXPECT_EQ(turns.back(), 38);
}

TEST(Measurement, SamplesAreInTheOrderOfTurns) {
  PlayedMachine machine(3);
  std::vector<int> asked;
  machine.time_of = [&](int index, int) {
    asked.push_back(index);
    return 10.0 * index;
  };
  const Measured measured =
      measure(machine.bench, {.min_samples = 40, .max_samples = 40, .seed = 9});
  ASSERT_TRUE(measured.status.ok());
  std::vector<int> expected;
  for (std::uint64_t repetition = 0; repetition < 20; ++repetition) {
    const auto order = interleaved_order(3, 2, 9 ^ (repetition << 32));
    expected.insert(expected.end(), order.begin(), order.end());
  }
  // Between a look at each output before and after.
  EXPECT_EQ(std::vector<int>(asked.begin() + 3, asked.end() - 3), expected);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(measured.samples_us[static_cast<std::size_t>(i)], std::vector<double>(40, 10.0 * i));
  }
}

TEST(Measurement, EndsWithTheVariantThatFails) {
  PlayedMachine machine(3);
  int calls = 0;
  const auto sample = machine.bench.sample_us;
  machine.bench.sample_us = [&](int index) -> Result<double> {
    if (++calls > 3 && index == 2) return Status{StatusCode::kDeviceError, "lost"};
    return sample(index);
  };
  const Measured measured = measure(machine.bench, kPlan);
  EXPECT_EQ(measured.failed, 2);
  EXPECT_EQ(measured.status.message(), "lost");
  EXPECT_LE(calls, 3 + 3) << "in the first round";
}

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

TEST(Repetitions, AreStretchesOfNearlyEqualLength) {
  const auto even = split_into_repetitions(500);
  EXPECT_EQ(even.size(), 20U);
  const auto odd = split_into_repetitions(11, 3);
  ASSERT_EQ(odd.size(), 3U);
  EXPECT_EQ(odd[0].samples, 4);
  EXPECT_EQ(odd[1].first_sample, 4);
  EXPECT_EQ(odd[2].first_sample, 8);
  EXPECT_EQ(odd[2].samples, 3);
  EXPECT_EQ(split_into_repetitions(3).size(), 3U);
  EXPECT_TRUE(split_into_repetitions(0).empty());
  EXPECT_EQ(repetition_medians({1, 2, 9, 4, 4, 4, 4, 5, 6, 7, 8}, odd),
            (std::vector<double>{3, 4, 7}));
}

TEST(Repetitions, AreMarkedBelowTheExpectedClock) {
  const std::vector<Repetition> repetitions = {
      {0, 5, {1980, 0}}, {5, 5, {1881, 0}}, {10, 7, {1880, 4}}, {17, 3, {}}};
  EXPECT_EQ(below_expected_clock(repetitions[0], 1980.0), false);
  EXPECT_EQ(below_expected_clock(repetitions[1], 1980.0), false) << "exactly 95 %";
  EXPECT_EQ(below_expected_clock(repetitions[2], 1980.0), true);
  EXPECT_EQ(below_expected_clock(repetitions[3], 1980.0), std::nullopt);
  EXPECT_EQ(below_expected_clock(repetitions[0], std::nullopt), std::nullopt);
  EXPECT_EQ(marked_samples(repetitions, 1980.0), 7);
  EXPECT_EQ(marked_samples(repetitions, std::nullopt), 0);
  EXPECT_EQ(expected_clock(std::vector<double>{1980, 1980, 1200}), 1980);
  EXPECT_EQ(expected_clock(std::vector<double>{}), std::nullopt);
}

TEST(Repetitions, ASlowRunIsToldThoughNothingInItIsMarked) {
  EXPECT_EQ(slow_run_note(1500.0, 1980),
            "the run's median SM clock, 1500 MHz, is below 95 % of the device's 1980 MHz");
  EXPECT_EQ(slow_run_note(1881.0, 1980), "");
  EXPECT_EQ(slow_run_note(std::nullopt, 1980), "");
  EXPECT_EQ(slow_run_note(1500.0, std::nullopt), "");
}

TEST(Repetitions, ARunCountsItsMarkedSamples) {
  PerfRecord record;
  record.samples_us = std::vector<double>(30, 1.0);
  record.repetitions = {{0, 10, {1500, 0}}, {10, 10, {1500, 0}}, {20, 10, {1200, 4}}};
  EXPECT_EQ(clock_notes({record, record}, 1980),
            (std::vector<std::string>{
                "20 of 60 samples are marked: their SM clock was below 95 % of 1500 MHz",
                "the run's median SM clock, 1500 MHz, is below 95 % of the device's 1980 MHz"}));
  EXPECT_EQ(clock_notes({record}, 1500).size(), 1U);
  record.repetitions = split_into_repetitions(30);
  EXPECT_EQ(clock_notes({record}, 1980),
            std::vector<std::string>{"no clocks of the samples: none is marked"});
  EXPECT_TRUE(clock_notes({}, 1980).empty());
}

TEST(Repetitions, ThrottleReasonsHaveNames) {
  EXPECT_TRUE(throttle_names(0).empty());
  EXPECT_EQ(throttle_names(0x24),
            (std::vector<std::string>{"sw_power_cap", "sw_thermal_slowdown"}));
  EXPECT_EQ(throttle_names(std::uint64_t{1} << 40), std::vector<std::string>{"bit_40"});
}

}  // namespace
}  // namespace fp8_sdpa::bench
