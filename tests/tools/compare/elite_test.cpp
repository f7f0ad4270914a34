// fp8_sdpa_elite: who joins, who is dropped and why, and that the file there is never lost.
#include "benchmarks/compare/elite.hpp"

#include <gtest/gtest.h>

#include <string>

#include "benchmarks/files/validate.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

class EliteTool : public ToolTest {
 protected:
  Ran update(const std::string& perf) const {
    return run(FP8_SDPA_ELITE_BINARY, {perf, "--baseline", "stage_c", "--elite", at("elite.json")});
  }
  /// "a 2.000, b 1.500"
  std::string members() const {
    std::string out;
    const json document = read_json_file(at("elite.json"));
    for (const json& entry : document.at("elite")) {
      std::array<char, 64> number{};
      std::snprintf(number.data(), number.size(), " %.3f", entry.at("speedup").get<double>());
      out += (out.empty() ? "" : ", ") + entry.at("variant").get<std::string>() + number.data();
    }
    return out;
  }
  void expect_refused(const std::string& perf, const std::string& line) const {
    const std::string before = read(at("elite.json"));
    const Ran ran = update(perf);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(ran.err, "fp8_sdpa_elite: " + line + "\n");
    EXPECT_EQ(read(at("elite.json")), before);
  }
  /// Two shapes on which the baseline takes 100 us, and variants on both.
  std::string run_of(const std::string& name,
                     const std::vector<std::pair<const char*, std::pair<double, double>>>& times) {
    std::vector<MadeSeries> made = {{"stage_c", "mission", 100}, {"stage_c", "small", 100}};
    for (const auto& [variant, us] : times) {
      made.push_back({variant, "mission", us.first});
      made.push_back({variant, "small", us.second});
    }
    return make_run(name, made);
  }
};

TEST_F(EliteTool, KeepsTheThreeFastestByGeometricMean) {
  // b: sqrt(100 / 40 * 100 / 62.5) = 2, as d: by name.
  const Ran ran = update(run_of(
      "first",
      {{"a", {80, 80}}, {"b", {40, 62.5}}, {"c", {25, 25}}, {"d", {50, 50}}, {"e", {90, 90}}}));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(members(), "c 4.000, b 2.000, d 2.000");
  EXPECT_NE(ran.out.find("a dropped: 1.250x gains -37.5 % over the third, d (2.000x); 3 % is "
                         "asked\n"),
            std::string::npos)
      << ran.out;
  EXPECT_NE(ran.out.find("1. c 4.000x over stage_c\n"), std::string::npos);
  const Status form = validate_by_name(at("elite.json"), FP8_SDPA_SCHEMA_DIR);
  EXPECT_TRUE(form.ok()) << form.message();
}

TEST_F(EliteTool, ANewcomerMustGainThreePercentOverTheThird) {
  ASSERT_EQ(update(run_of("first", {{"a", {25, 25}}, {"b", {40, 40}}, {"c", {50, 50}}})).exit_code,
            0);
  const Ran little = update(run_of("little", {{"d", {100 / 2.05, 100 / 2.05}}}));
  ASSERT_EQ(little.exit_code, 0);
  EXPECT_EQ(members(), "a 4.000, b 2.500, c 2.000");
  EXPECT_NE(little.out.find("d dropped: 2.050x gains +2.5 % over the third, c (2.000x)"),
            std::string::npos)
      << little.out;
  const Ran enough = update(run_of("enough", {{"d", {100 / 2.07, 100 / 2.07}}}));
  ASSERT_EQ(enough.exit_code, 0);
  EXPECT_EQ(members(), "a 4.000, b 2.500, d 2.070");
  EXPECT_NE(enough.out.find("d joins with 2.070x; c (2.000x) leaves\n"), std::string::npos)
      << enough.out;
}

TEST_F(EliteTool, ANewcomerMayRegressOnOneShapeOnly) {
  const Ran ran = update(run_of("first", {{"one", {10, 105}}, {"two", {103, 104}}}));
  ASSERT_EQ(ran.exit_code, 0);
  EXPECT_EQ(members(), "one 3.086");
  EXPECT_NE(
      ran.out.find("two dropped: slower than stage_c on 2 shapes: mission 0.971x, small 0.962x\n"),
      std::string::npos)
      << ran.out;
}

TEST_F(EliteTool, AMemberTakesItsNewFigures) {
  ASSERT_EQ(update(run_of("first", {{"a", {25, 25}}, {"b", {40, 40}}})).exit_code, 0);
  const Ran ran = update(run_of("again", {{"a", {50, 50}}}));
  ASSERT_EQ(ran.exit_code, 0);
  EXPECT_EQ(members(), "b 2.500, a 2.000");
  EXPECT_NE(ran.out.find("a measured again: 2.000x, was 4.000x\n"), std::string::npos) << ran.out;
}

TEST_F(EliteTool, DropsWhatFailedItsGatesOrMissesAShape) {
  const std::string perf = make_run("run", {{"stage_c", "mission", 100},
                                            {"stage_c", "small", 100},
                                            {"wrong", "mission", 1, Method::kEventsWarm, false},
                                            {"wrong", "small", 1},
                                            {"partial", "mission", 1}});
  const Ran ran = update(perf);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(members(), "");
  EXPECT_NE(ran.out.find("wrong dropped: gates failed on mission: "), std::string::npos);
  EXPECT_NE(ran.out.find("partial dropped: not measured on small\n"), std::string::npos);
}

TEST_F(EliteTool, RefusesWhatCannotBeRankedTogether) {
  ASSERT_EQ(update(run_of("first", {{"a", {25, 25}}})).exit_code, 0);
  const std::string less = make_run("less", {{"stage_c", "mission", 100}, {"b", "mission", 1}});
  expect_refused(less, less + ": shapes mission, expected mission, small as in the elite file");
  const std::string perf = run_of("other", {{"b", {1, 1}}});
  for (const char* name : {kPerfFile, kCorrectnessFile}) {
    json document = read_json_file(at("other/" + std::string(name)));
    document["device"]["name"] = "NVIDIA L4";
    write(at("other/" + std::string(name)), document.dump());
  }
  expect_refused(perf, perf + ": device NVIDIA L4, expected NVIDIA H200 as in the elite file");
  const std::string third = run_of("third", {{"b", {1, 1}}});
  const Ran ran =
      run(FP8_SDPA_ELITE_BINARY, {third, "--baseline", "b", "--elite", at("elite.json")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err,
            "fp8_sdpa_elite: " + third + ": baseline b, expected stage_c as in the elite file\n");
  const Ran none = run(FP8_SDPA_ELITE_BINARY, {third, "--baseline", "x"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, "fp8_sdpa_elite: " + third +
                          ": no baseline x by events_l2_warm, expected one of stage_c, b\n");
}

TEST_F(EliteTool, RefusesAMalformedEliteFileAndLeavesItAsItIs) {
  const std::string perf = run_of("first", {{"a", {25, 25}}});
  write(at("elite.json"), "{\"schema_version\": 7}");
  expect_refused(perf, at("elite.json") + ": /schema_version: got 7, expected 1");
  ASSERT_TRUE(std::filesystem::remove(at("elite.json")));
  ASSERT_EQ(update(perf).exit_code, 0);
  json good = read_json_file(at("elite.json"));
  json twice = good;
  twice["elite"].push_back(twice["elite"][0]);
  write(at("elite.json"), twice.dump());
  expect_refused(perf, at("elite.json") + ": /elite/1/variant: a is there twice, expected once");
  twice["elite"][1]["shapes"].erase("small");
  write(at("elite.json"), twice.dump());
  expect_refused(
      perf, at("elite.json") + ": /elite/1/shapes: expected mission, small as in the first entry");
  for (const char* text : {"", "[1, 2", "{\"schema_version\": 1}"}) {
    write(at("elite.json"), text);
    const Ran ran = update(perf);
    EXPECT_EQ(ran.exit_code, 2) << text;
    EXPECT_EQ(ran.err.rfind("fp8_sdpa_elite: " + at("elite.json") + ": ", 0), 0U) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(read(at("elite.json")), text);
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
