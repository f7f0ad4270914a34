// fp8_sdpa_compare: its numbers against ones worked out by hand, every refusal by its line.
#include "benchmarks/compare/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/tools/compare/compare_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

class Compare : public CompareTest {
 protected:
  std::string old_file = make_run("old", {{"stage_c", "mission", 40}, {"stage_c", "small", 10}});
  std::string new_file = make_run("new", {{"stage_c", "mission", 20}, {"stage_c", "small", 8}});
};

TEST_F(Compare, MeansAreThoseWorkedOutByHand) {
  // 40 / 20 = 2, 10 / 8 = 1.25: arithmetic 1.625, geometric sqrt(2.5) = 1.5811.
  const Ran ran = compare_files({old_file, new_file});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string text = read(at("COMPARE.md"));
  for (const char* line :
       {"| mission | events_l2_warm | 40.00 / 20.00 | 40.00 / 20.00 | 40.00 / 20.00 | 0.00 / 0.00 "
        "| 2.000x | 2.000x | 2.000x | PASS |\n",
        "| small | events_l2_warm | 10.00 / 8.00 |",
        "| **arithmetic mean** | | | | | | **1.625x** | **1.625x** | **1.625x** | PASS |\n",
        "| **geometric mean** | | | | | | **1.581x** | **1.581x** | **1.581x** | PASS |\n",
        "| device | device NVIDIA H200 | device NVIDIA H200 |\n", "**Verdict: PASS**\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  }
  EXPECT_EQ(ran.out, text + "\nwritten: " + at("COMPARE.md") + "\n");
}

TEST_F(Compare, AMissedSpeedUpIsExitCodeOne) {
  EXPECT_EQ(compare_files({old_file, new_file, "--min-speedup", "1.58"}).exit_code, 0);
  EXPECT_EQ(compare_files({old_file, new_file, "--min-speedup", "1.59"}).exit_code, 1);
  EXPECT_NE(read(at("COMPARE.md"))
                .find("**Verdict: FAIL**\n\n- stage_c: geometric mean speed-up 1.581x of p50 is "
                      "below the asked 1.590x\n"),
            std::string::npos);
}

TEST_F(Compare, AnAskedSpeedUpThatIsMetExactlyIsMet) {
  const std::string from = make_run("from", {{"stage_c", "a", 11}, {"stage_c", "b", 11}});
  const std::string to = make_run("to", {{"stage_c", "a", 10}, {"stage_c", "b", 10}});
  EXPECT_EQ(compare_files({from, to, "--min-speedup", "1.1"}).exit_code, 0);
}

TEST_F(Compare, ARegressedShapeIsExitCodeOneThoughTheMeanIsThere) {
  const std::string slower =
      make_run("slower", {{"stage_c", "mission", 10}, {"stage_c", "small", 10.3}});
  EXPECT_EQ(compare_files({old_file, slower}).exit_code, 1);
  EXPECT_NE(read(at("COMPARE.md")).find("- stage_c: small regressed: 0.971x of p50\n"),
            std::string::npos);
  // Within the noise, and not asked for.
  const std::string noise =
      make_run("noise", {{"stage_c", "mission", 10}, {"stage_c", "small", 10.1}});
  EXPECT_EQ(compare_files({old_file, noise}).exit_code, 0);
  EXPECT_EQ(compare_files({old_file, slower, "--shapes", "mission"}).exit_code, 0);
}

TEST_F(Compare, EachAskedStatisticMustReachIt) {
  edit(new_file, [](json& d) {
    for (json& result : d["results"]) result["p90_us"] = 100.0;
  });
  EXPECT_EQ(compare_files({old_file, new_file}).exit_code, 0);
  EXPECT_EQ(compare_files({old_file, new_file, "--by", "p50,p90,mean"}).exit_code, 1);
  EXPECT_NE(read(at("COMPARE.md")).find("speed-up 0.200x of p90 is below"), std::string::npos);
}

TEST_F(Compare, TwoVariantsOfOneFile) {
  const std::string both =
      make_run("both", {{"stage_c", "mission", 40}, {"stage_c_cp_async", "mission", 32}}, true);
  const Ran ran =
      compare_files({both, both, "--variant-old", "stage_c", "--variant-new", "stage_c_cp_async"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string text = read(at("COMPARE.md"));
  EXPECT_NE(text.find("## stage_c -> stage_c_cp_async\n"), std::string::npos);
  EXPECT_NE(text.find("**1.250x**"), std::string::npos);
  EXPECT_NE(text.find("samples interleaved at random"), std::string::npos);
}

TEST_F(Compare, OtherMethodsAreShownAndNotJudged) {
  const std::string from = make_run(
      "from", {{"stage_c", "mission", 20}, {"stage_c", "mission", 10, Method::kGraphWarm}});
  const std::string to =
      make_run("to", {{"stage_c", "mission", 10}, {"stage_c", "mission", 40, Method::kGraphWarm}});
  EXPECT_EQ(compare_files({from, to}).exit_code, 0);
  EXPECT_NE(read(at("COMPARE.md")).find("| mission | graph_l2_warm (not judged) | 10.00 / 40.00 |"),
            std::string::npos);
  EXPECT_EQ(compare_files({from, to, "--method", "graph_l2_warm"}).exit_code, 1);
}

TEST_F(Compare, AFailedGateCountsForNothing) {
  const std::string failed = make_run(
      "failed", {{"stage_c", "mission", 1, Method::kEventsWarm, false}, {"stage_c", "small", 1}});
  EXPECT_EQ(compare_files({old_file, failed}).exit_code, 1);
  const std::string text = read(at("COMPARE.md"));
  EXPECT_NE(text.find("gates of stage_c on mission failed: "), std::string::npos) << text;
  EXPECT_NE(text.find("| - | - | - | FAIL |\n"), std::string::npos) << text;
}

TEST_F(Compare, RefusesAnotherDeviceOrBackend) {
  for (const std::string& name : {std::string(kPerfFile), std::string(kCorrectnessFile)}) {
    edit(at("new/" + name), [](json& d) { d["device"]["name"] = "NVIDIA L4"; });
  }
  expect_refused({old_file, new_file}, new_file +
                                           ": measured on device NVIDIA L4, expected device NVIDIA "
                                           "H200 as in " +
                                           old_file);
  for (const std::string& name : {std::string(kPerfFile), std::string(kCorrectnessFile)}) {
    edit(at("new/" + name), [](json& d) {
      d["backend"] = "host";
      d["device"] = nullptr;
    });
  }
  expect_refused({old_file, new_file},
                 new_file + ": measured on host, expected device NVIDIA H200 as in " + old_file);
}

TEST_F(Compare, RefusesOtherShapes) {
  const std::string less = make_run("less", {{"stage_c", "mission", 20}});
  expect_refused({old_file, less},
                 less +
                     ": shape small is missing for stage_c by events_l2_warm, expected it "
                     "beside mission");
  expect_refused({less, old_file},
                 less +
                     ": shape small is missing for stage_c by events_l2_warm, expected it "
                     "beside mission");
  expect_refused({old_file, new_file, "--shapes", "long"},
                 old_file +
                     ": shape long is missing for stage_c by events_l2_warm, expected it "
                     "beside mission, small");
  edit(new_file, [](json& d) { d["results"][0]["B"] = 2; });
  expect_refused({old_file, new_file},
                 new_file +
                     ": shape mission is B=2 H=8 H_kv=8 S=512 S_kv=512 D=64 mask=none, expected "
                     "B=1 H=8 H_kv=8 S=512 S_kv=512 D=64 mask=none as in " +
                     old_file);
}

TEST_F(Compare, SeveralVariantsAgainstOneOnTheShapesThatBothHave) {
  const std::string file = make_run("run",
                                    {{"slow", "mission", 40},
                                     {"slow", "long", 80},
                                     {"other", "mission", 30},
                                     {"fast", "mission", 20},
                                     {"fast", "long", 40}},
                                    /*interleaved=*/true);
  expect_refused({file, file, "--variant-old", "slow,other", "--variant-new", "fast"},
                 file +
                     ": shape long is missing for other by events_l2_warm, expected it beside "
                     "mission");
  const Ran ran = compare_files(
      {file, file, "--variant-old", "slow,other", "--variant-new", "fast", "--common"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string text = read(at("COMPARE.md"));
  EXPECT_NE(text.find("## slow -> fast"), std::string::npos);
  EXPECT_NE(text.find("## other -> fast"), std::string::npos);
  EXPECT_NE(text.find("Left out, because one of the two lacks them: long."), std::string::npos);
  EXPECT_EQ(
      compare_files({file, file, "--variant-old", "slow,fast", "--variant-new", "fast"}).exit_code,
      2)
      << "a variant was compared with itself";
}

TEST_F(Compare, RefusesAMissingVariant) {
  expect_refused({old_file, new_file, "--variant-old", "stage_c", "--variant-new", "sm90"},
                 new_file + ": no variant sm90, expected one of stage_c");
  expect_refused({old_file, new_file, "--variant-old", "stage_c"},
                 "--variant-old stage_c --variant-new all: expected two names, or all for both");
  const std::string other = make_run("other", {{"sm90", "mission", 20}});
  expect_refused({old_file, other}, other + ": no variant stage_c, expected one of sm90");
  expect_refused({old_file, old_file}, old_file +
                                           ": compared with itself, expected another file or "
                                           "--variant-old and --variant-new");
}

TEST_F(Compare, RefusesAnotherSchemaVersion) {
  edit(new_file, [](json& d) { d["schema_version"] = 3; });
  expect_refused({old_file, new_file}, new_file + ": /schema_version: got 3, expected 2");
  edit(new_file, [](json& d) { d["schema_version"] = 1; });
  expect_refused({old_file, new_file}, new_file + ": /schema_version: got 1, expected 2");
}

TEST_F(Compare, RefusesWhatIsNoResultFile) {
  write(at("text.json"), "hello");
  const Ran ran = compare_files({old_file, at("text.json")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err.rfind("fp8_sdpa_compare: " + at("text.json") + ": ", 0), 0U) << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1);
  write(at("other.json"), "{}");
  expect_refused(
      {old_file, at("other.json")},
      at("other.json") + ": neither a perf_baseline.json nor a file that fp8_sdpa_bench wrote");
  expect_refused({old_file, at("none.json")},
                 at("none.json") + ": No such file or directory, expected a readable JSON file");
  expect_refused({old_file, new_file, "--by", "p99"}, "--by p99: expected p50, p90 or mean");
  edit(new_file, [](json& d) { d["results"][1] = d["results"][0]; });
  expect_refused({old_file, new_file}, new_file +
                                           ": /results/1: stage_c on mission by events_l2_warm is "
                                           "there twice, expected once");
  edit(new_file, [](json& d) { d["results"] = json::array(); });
  expect_refused({old_file, new_file}, new_file + ": /results: empty, expected measured series");
}

TEST_F(Compare, RefusesTimesWithoutTheirGates) {
  const std::string summary = at("new/" + std::string(kCorrectnessFile));
  edit(summary, [](json& d) { d["timestamp"] = "2020-01-01T00:00:00Z"; });
  expect_refused({old_file, new_file}, summary +
                                           ": /timestamp: got \"2020-01-01T00:00:00Z\", expected "
                                           "\"1970-01-01T00:00:00Z\" as in " +
                                           new_file);
  edit(summary, [](json& d) {
    d["timestamp"] = "1970-01-01T00:00:00Z";
    d["results"].erase(0);
  });
  expect_refused({old_file, new_file}, summary +
                                           ": no verdict on stage_c on mission, expected one for "
                                           "each series of " +
                                           new_file);
  std::filesystem::remove(summary);
  expect_refused({old_file, new_file},
                 summary + ": not there, expected the gates' verdict on the run of " + new_file);
}

TEST_F(Compare, NeverLosesTheFileThatWasThere) {
  write(at("COMPARE.md"), "old words\n");
  EXPECT_EQ(compare_files({old_file, at("none.json")}).exit_code, 2);
  EXPECT_EQ(read(at("COMPARE.md")), "old words\n");
  // Nor where it cannot be replaced: a folder of that name stands in the way.
  std::filesystem::create_directories(at("taken/COMPARE.md"));
  const Ran ran =
      run(FP8_SDPA_COMPARE_BINARY, {old_file, new_file, "--out", at("taken/COMPARE.md")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "fp8_sdpa_compare: result file " + at("taken/COMPARE.md") +
                         ": Is a directory, expected a folder that can be written\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(at("taken")),
                          std::filesystem::directory_iterator()),
            1)
      << "a temporary file is left";
}

json benchmark_entry(const std::string& name, double us) {
  return {{"name", name}, {"run_type", "iteration"}, {"p50_us", us},
          {"p90_us", us}, {"mean_us", us},           {"std_us", 0.5}};
}

json benchmark_file(json entries) {
  return {{"context", {{"backend", "device"}, {"device_name", "NVIDIA H200"}, {"date", "today"}}},
          {"benchmarks", std::move(entries)}};
}

TEST_F(Compare, ReadsGoogleBenchmarkAndAveragesRepetitions) {
  const std::string path = at("bench.json");
  const std::string suffix = "/iterations:500/manual_time";
  json mean = benchmark_entry("forward/stage_c/mission" + suffix + "_mean", 7);
  mean["run_type"] = "aggregate";
  json entries = json::array({mean, benchmark_entry("forward/stage_c/mission/cold" + suffix, 3),
                              benchmark_entry("forward/stage_c/mission/graph", 2),
                              benchmark_entry("forward/stage_c/mission/queued" + suffix, 4),
                              benchmark_entry("forward/stage_c/mission/rotating" + suffix, 6),
                              benchmark_entry("forward/stage_c/mission/unknown" + suffix, 8),
                              benchmark_entry("host_executor/stage_c/mission/real_time", 1)});
  for (int repetition = 0; repetition < 10; ++repetition) {
    entries.push_back(
        benchmark_entry("forward/stage_c/mission" + suffix, repetition % 2 == 0 ? 10 : 30));
    entries.push_back(benchmark_entry("forward/stage_c/small" + suffix, 5));
  }
  write(path, benchmark_file(entries).dump());
  const auto file = read_perf_file(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->series.size(), 6U);
  EXPECT_EQ(file->find("stage_c", "mission", "events_l2_warm")->times.p50, 20);
  EXPECT_EQ(file->find("stage_c", "mission", "queued_l2_warm")->times.p50, 4);
  EXPECT_EQ(file->find("stage_c", "mission", "queued_rotating")->times.p50, 6);
  EXPECT_EQ(file->find("stage_c", "mission", "events_l2_cold")->times.p50, 3);
  EXPECT_EQ(file->find("stage_c", "mission", "graph_l2_warm")->times.p50, 2);
  // Against the other kind of file.
  EXPECT_EQ(compare_files({old_file, path}).exit_code, 0);
  EXPECT_NE(read(at("COMPARE.md")).find("40.00 / 20.00"), std::string::npos);
  entries.erase(entries.size() - 1);
  entries.erase(entries.size() - 2);
  entries.erase(entries.size() - 2);
  write(path, benchmark_file(entries).dump());
  std::filesystem::remove(at("COMPARE.md"));
  expect_refused({old_file, path},
                 path +
                     ": stage_c on small by events_l2_warm has 8 repetitions, expected at least 9 "
                     "(--benchmark_repetitions=9)");
}

TEST_F(Compare, GoogleBenchmarkSaysWhatFailed) {
  json failed = benchmark_entry("forward/stage_c/mission", 10);
  failed["error_occurred"] = true;
  failed["error_message"] = "gate rel_l2";
  write(at("bench.json"), benchmark_file({failed}).dump());
  const auto file = read_perf_file(at("bench.json"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->series.front().gate_failure, "gate rel_l2");
  write(at("bench.json"), benchmark_file(json::array()).dump());
  expect_refused(
      {old_file, at("bench.json")},
      at("bench.json") + ": /benchmarks: no forward/VARIANT/SHAPE, expected measured series");
  json untimed = benchmark_entry("forward/stage_c/mission", 10);
  untimed["p90_us"] = "NaN";
  write(at("bench.json"), benchmark_file({untimed}).dump());
  expect_refused({old_file, at("bench.json")},
                 at("bench.json") + ": /benchmarks/0/p90_us: got \"NaN\", expected a time");
  json foreign = benchmark_file(json::array());
  foreign["context"].erase("backend");
  write(at("bench.json"), foreign.dump());
  expect_refused(
      {old_file, at("bench.json")},
      at("bench.json") + ": /context/backend: missing, expected a file that fp8_sdpa_bench wrote");
}

TEST(GeometricMean, IsTheRootOfTheProduct) {
  EXPECT_NEAR(geometric_mean({2, 8}), 4, 1e-12);
  EXPECT_NEAR(geometric_mean({3}), 3, 1e-12);
  EXPECT_TRUE(std::isnan(geometric_mean({})));
  EXPECT_TRUE(std::isnan(geometric_mean({1, std::nan("")})));
}

}  // namespace
}  // namespace fp8_sdpa::bench
