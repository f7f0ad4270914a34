// Verdicts on cases: on real noise, on noise that drifts, with a slow-down planted in it.
#include "benchmarks/statistics/significance.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/statistics/stats.hpp"
#include "reference/inputs/philox.hpp"
#include "tests/tools/recorded.hpp"

namespace fp8_sdpa::bench {
namespace {

std::vector<CaseResult> results_of(const std::vector<Case>& cases,
                                   const SignificanceRule& rule = {}) {
  const auto results = judge_cases(cases, rule);
  EXPECT_TRUE(results.ok()) << results.status().message();
  return results.ok() ? *results : std::vector<CaseResult>(cases.size());
}

std::vector<double> spread_about(double middle, int count = 12) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(middle * (1 + 0.0001 * (i - count / 2)));
  return out;
}

TEST(Significance, AsksForBothFloorAndTest) {
  // Far apart beyond chance, but by 1 %: nobody would notice. 5 % apart, but lost in the noise.
  const Case small = {spread_about(100), spread_about(101)};
  Case noisy;
  for (int i = 0; i < 12; ++i) {
    noisy.old_times.push_back(50 + 10 * (i % 12));
    noisy.new_times.push_back(55 + 10 * (i % 12));
  }
  const auto results = results_of({small, noisy});
  EXPECT_TRUE(results[0].significant);
  EXPECT_EQ(results[0].verdict, CaseVerdict::kSame);
  EXPECT_GT(1 / results[1].speedup, 1.04);
  EXPECT_FALSE(results[1].significant);
  EXPECT_EQ(results[1].verdict, CaseVerdict::kSame);
}

TEST(Significance, TellsFasterFromSlower) {
  const auto results =
      results_of({{spread_about(100), spread_about(103)}, {spread_about(103), spread_about(100)}});
  EXPECT_EQ(results[0].verdict, CaseVerdict::kSlower);
  EXPECT_EQ(results[1].verdict, CaseVerdict::kFaster);
  EXPECT_NEAR(results[0].speedup * results[1].speedup, 1, 1e-12);
  EXPECT_STREQ(name_of(results[0].verdict), "slower");
  EXPECT_EQ(results_of({{spread_about(100), spread_about(103)}}, {.min_effect = 0.05})[0].verdict,
            CaseVerdict::kSame);
}

TEST(Significance, NineRepetitionsStandInAThousandCases) {
  std::vector<Case> cases(1000, {spread_about(100, 9), spread_about(100, 9)});
  cases[500].new_times = spread_about(110, 9);
  const auto results = results_of(cases);
  EXPECT_EQ(results[500].verdict, CaseVerdict::kSlower) << results[500].adjusted_p;
  EXPECT_EQ(results[499].verdict, CaseVerdict::kSame);
}

TEST(Significance, RefusesTooFewAndNan) {
  const auto few = judge_cases({{spread_about(1, 8), spread_about(1, 20)}}, {});
  ASSERT_FALSE(few.ok());
  EXPECT_EQ(few.status().message(), "8 repetitions, expected at least 9 of each side");
  Case odd = {spread_about(1), spread_about(1)};
  odd.new_times[3] = std::nan("");
  EXPECT_FALSE(judge_cases({odd}, {}).ok());
  EXPECT_TRUE(judge_cases({}, {})->empty());
}

/// Every recorded series as a case: its even samples against its odd ones, which the machine's
/// drift meets alike, in 20 repetitions each; of the odd ones each is multiplied by `factor`.
std::vector<Case> recorded_cases(const std::string& method, double factor = 1) {
  std::vector<Case> cases;
  const auto of_parity = [&](std::size_t parity) {
    return in_repetitions(recorded_file(), [=](std::size_t i) { return i % 2 == parity; });
  };
  const nlohmann::json even = of_parity(0);
  const nlohmann::json odd = of_parity(1);
  const auto medians = [](const nlohmann::json& result) {
    const auto samples = result.at("samples_us").get<std::vector<double>>();
    return repetition_medians(samples, split_into_repetitions(static_cast<int>(samples.size())));
  };
  for (std::size_t i = 0; i < even["results"].size(); ++i) {
    if (even["results"][i]["method"] != method) continue;
    cases.push_back({medians(even["results"][i]), medians(odd["results"][i])});
    for (double& time : cases.back().new_times) time *= factor;
  }
  return cases;
}

class RecordedNoise : public testing::TestWithParam<const char*> {};

TEST_P(RecordedNoise, RaisesNoAlarm) {
  const std::vector<Case> cases = recorded_cases(GetParam());
  ASSERT_EQ(cases.size(), 55U);
  for (const CaseResult& result : results_of(cases)) {
    EXPECT_EQ(result.verdict, CaseVerdict::kSame) << result.speedup << " p " << result.adjusted_p;
  }
}

TEST_P(RecordedNoise, APlantedSlowDownOfThreePercentIsFound) {
  // In one quiet case at a time, among all the others; and in that one alone.
  constexpr double kSlower = 1.03;
  const std::vector<Case> clean = recorded_cases(GetParam());
  const std::vector<Case> slowed = recorded_cases(GetParam(), kSlower);
  int planted = 0;
  for (std::size_t i = 0; i < clean.size(); ++i) {
    // Half of what ends the sampling (measurement.hpp): so quiet that 3 % cannot look like 2 %.
    if (!(relative_standard_error(clean[i].old_times) < 0.0025)) continue;
    ++planted;
    std::vector<Case> cases = clean;
    cases[i] = slowed[i];
    const auto results = results_of(cases);
    for (std::size_t j = 0; j < results.size(); ++j) {
      EXPECT_EQ(results[j].verdict, i == j ? CaseVerdict::kSlower : CaseVerdict::kSame)
          << "planted in " << i << ", looked at " << j << ": " << results[j].speedup << ", p "
          << results[j].adjusted_p;
    }
  }
  EXPECT_GE(planted, 20);
}

INSTANTIATE_TEST_SUITE_P(Methods, RecordedNoise,
                         testing::Values("events_l2_warm", "events_l2_cold", "graph_l2_warm"));

/// Repetitions of a machine that gets slower and slower, with neighbours alike; its samples belong
/// to two sides, interleaved.
Case drifting_case(std::uint64_t seed) {
  const reference::PhiloxStream words(seed, 0);
  constexpr int kEach = 20;
  constexpr double kDrift = 0.10;  // from the first to the last
  double wander = 0;
  Case out;
  for (int i = 0; i < 2 * kEach; ++i) {
    const double noise = words.word(static_cast<std::uint64_t>(i)) / 4294967296.0 - 0.5;
    wander = 0.9 * wander + 0.01 * noise;
    const double time = 100 * (1 + kDrift * i / (2 * kEach) + wander);
    // Which side comes first alternates, as a random order would make it on average.
    ((i + i / 2) % 2 == 0 ? out.old_times : out.new_times).push_back(time);
  }
  return out;
}

TEST(Significance, DriftRaisesFewAlarmsWhereSidesTakeTurns) {
  constexpr int kComparisons = 200;
  constexpr int kCases = 10;
  int alarms = 0;
  for (int comparison = 0; comparison < kComparisons; ++comparison) {
    std::vector<Case> cases;
    for (int i = 0; i < kCases; ++i) {
      cases.push_back(drifting_case(static_cast<std::uint64_t>(comparison * kCases + i)));
    }
    bool alarm = false;
    for (const CaseResult& r : results_of(cases)) alarm |= r.verdict != CaseVerdict::kSame;
    alarms += alarm;
  }
  EXPECT_LE(alarms, kComparisons * 5 / 100);
}

}  // namespace
}  // namespace fp8_sdpa::bench
