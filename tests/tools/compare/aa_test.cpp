// fp8_sdpa_compare --aa: the share of false alarms, on recorded and on made-up times.
#include "benchmarks/compare/aa.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "benchmarks/command/text.hpp"
#include "reference/inputs/philox.hpp"
#include "tests/tools/recorded.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

class Aa : public ToolTest {
 protected:
  Ran aa(const std::vector<std::string>& arguments) const {
    return run(FP8_SDPA_COMPARE_BINARY, arguments);
  }
  /// The recorded run as version 2, with its gates' verdicts beside it.
  std::string recorded_run() const {
    const json file = in_repetitions(recorded_file(), [](std::size_t) { return true; });
    write(at("run/" + std::string(kPerfFile)), file.dump());
    write(at("run/" + std::string(kCorrectnessFile)), recorded_verdicts(file).dump());
    return at("run/" + std::string(kPerfFile));
  }
};

TEST_F(Aa, RecordedTimesRaiseFewFalseAlarms) {
  const std::string file = recorded_run();
  for (const char* method : {"events_l2_warm", "events_l2_cold", "graph_l2_warm"}) {
    const Ran ran = aa({"--aa", file, "--method", method});
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("55 cases by " + std::string(method) + ", at least 20 repetitions"),
              std::string::npos)
        << ran.out;
    EXPECT_NE(ran.out.find(" of 100, "), std::string::npos) << ran.out;
    EXPECT_TRUE(ran.out.ends_with("Verdict: PASS\n")) << ran.out;
  }
}

TEST_F(Aa, LeavesARecord) {
  const Ran ran = aa({"--aa", recorded_run(), "--aa-record", at("aa.json")});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json record = read_json_file(at("aa.json"));
  EXPECT_EQ(record.at("comparisons"), 100);
  EXPECT_EQ(record.at("cases"), 55);
  EXPECT_LE(record.at("false_alarm_rate").get<double>(), kMaxFalseAlarms);
  EXPECT_EQ(record.at("pass"), true);
  EXPECT_FALSE(record.at("device").get<std::string>().empty());
}

TEST_F(Aa, TheSeedMakesTheCuts) {
  const std::string file = recorded_run();
  const Ran one = aa({"--aa", file, "--aa-seed", "5", "--min-effect", "0"});
  EXPECT_EQ(one.out, aa({"--aa", file, "--aa-seed", "5", "--min-effect", "0"}).out);
}

PerfFile made_file(int cases, int repetitions,
                   const std::function<double(int, int)>& time_of_case_and_repetition) {
  PerfFile file;
  file.path = "made";
  for (int c = 0; c < cases; ++c) {
    PerfSeries series;
    series.variant = format("v%d", c);
    series.shape = "s";
    series.method = "events_l2_warm";
    for (int r = 0; r < repetitions; ++r) {
      const double time = time_of_case_and_repetition(c, r);
      series.repetitions.push_back({{time, time, time, 0}, std::nullopt, {}});
    }
    file.series.push_back(series);
  }
  return file;
}

double noise(int c, int r) {
  return reference::PhiloxStream(static_cast<std::uint64_t>(c), 0)
             .word(static_cast<std::uint64_t>(r)) /
         4294967296.0;
}

TEST(AaRate, TheTestAloneKeepsItsAlpha) {
  // Without the floor, the alarms are those of the test: at most 5 % in the long run.
  const PerfFile file =
      made_file(10, 24, [](int c, int r) { return 100 * (1 + 0.2 * noise(c, r)); });
  AaOptions options;
  options.splits = 1000;
  options.rule.min_effect = 0;
  const auto report = compare_with_itself(file, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->comparisons, 1000);
  EXPECT_EQ(report->alarms, report->test_alarms);
  EXPECT_GT(report->alarms, 0) << "the rate is measured, not assumed";
  EXPECT_LE(report->rate(), 0.05 + 4 * 0.0069);  // four standard deviations above
}

TEST(AaRate, DriftIsToldAndRaisesNoAlarms) {
  // 10 % slower from the first repetition to the last: halves in time differ, random halves do not.
  const PerfFile file = made_file(
      5, 20, [](int c, int r) { return 100 * (1 + 0.10 * r / 20.0 + 0.01 * noise(c, r)); });
  const auto report = compare_with_itself(file, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->pass()) << report->alarms;
  EXPECT_EQ(report->drifted.size(), 5U);
  EXPECT_NE(to_text(*report, file, {}).find("in time's order, these differ: v0 on s, "),
            std::string::npos);
}

TEST(AaRate, FailsAboveFivePercent) {
  // A rule that calls every difference an alarm.
  const PerfFile file = made_file(3, 20, [](int c, int r) { return 100 + noise(c, r); });
  AaOptions options;
  options.rule = {.min_effect = 0, .alpha = 1};
  const auto report = compare_with_itself(file, options);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->pass());
  EXPECT_TRUE(to_text(*report, file, options).ends_with("Verdict: FAIL\n"));
}

TEST_F(Aa, RefusesWhatCannotBeCutInTwo) {
  const std::string file = make_run("run", {{"stage_c", "mission", 40}});
  EXPECT_EQ(aa({"--aa", file}).exit_code, 0);
  EXPECT_EQ(aa({"--aa", file, "--method", "graph_l2_warm"}).err,
            "fp8_sdpa_compare: " + file + ": no series by graph_l2_warm that passed its gates\n");
  json less = read_json_file(file);
  std::vector<double> kept(17, 40.0);
  less["results"][0]["samples_us"] = kept;
  less["results"][0]["repetitions"].erase(17);
  less["results"][0]["repetitions"].erase(17);
  less["results"][0]["repetitions"].erase(17);
  write(file, less.dump());
  const Ran few = aa({"--aa", file});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_EQ(few.err, "fp8_sdpa_compare: " + file +
                         ": stage_c on mission by events_l2_warm has 17 repetitions, expected at "
                         "least 18, to cut them in two\n");
  const std::string old_version = kRecordedFolder + kPerfFile;
  EXPECT_EQ(aa({"--aa", old_version}).err,
            "fp8_sdpa_compare: " + old_version + ": /schema_version: got 1, expected 2\n");
  EXPECT_EQ(aa({file, file, "--aa", file}).err,
            "fp8_sdpa_compare: --aa takes one file and no OLD or NEW\n");
  EXPECT_EQ(aa({file}).err,
            "fp8_sdpa_compare: expected two files, OLD and NEW, or --aa FILE (see --help)\n");
}

}  // namespace
}  // namespace fp8_sdpa::bench
