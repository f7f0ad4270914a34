// fp8_sdpa_compare on repetitions: what it refuses for their sake, its verdicts on recorded noise.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/compare/compare.hpp"
#include "tests/tools/compare/compare_fixture.hpp"
#include "tests/tools/recorded.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

class CompareRepetitions : public CompareTest {
 protected:
  static void set_clock(json& document, int mhz) {
    for (json& result : document["results"]) {
      for (json& repetition : result["repetitions"]) repetition["sm_clock_mhz"] = mhz;
    }
  }
  /// The recorded run's even or odd samples, as a run of its own.
  std::string recorded_run(
      std::size_t parity, const std::function<void(json&)>& change = [](json&) {}) const {
    const std::string folder = parity == 0 ? "even/" : "odd/";
    json file = recorded_file();
    change(file);
    file = in_repetitions(std::move(file), [=](std::size_t i) { return i % 2 == parity; });
    write(at(folder + kPerfFile), file.dump());
    write(at(folder + kCorrectnessFile), recorded_verdicts(file).dump());
    return at(folder + kPerfFile);
  }

  std::string old_file = make_run("old", {{"stage_c", "mission", 40}});
  std::string new_file = make_run("new", {{"stage_c", "mission", 20}});
};

TEST_F(CompareRepetitions, TheTestsTableHasItsCases) {
  edit(old_file, [](json& d) { set_clock(d, 1980); });
  edit(new_file, [](json& d) {
    set_clock(d, 1965);
    d["results"][0]["marked_samples"] = 3;
  });
  EXPECT_EQ(compare_files({old_file, new_file}).exit_code, 0);
  // U = 400 of 20 and 20, each side of one value, so that the sum of t^3 - t is 15960:
  // z = (200 - 0.5) / sqrt(400 / 12 * (41 - 15960 / 1560)) = 6.23.
  EXPECT_NE(read(at("COMPARE.md"))
                .find("| mission | p50 | 2.000x | 4.7e-10 | 4.7e-10 | faster | 20 / 20 | 1980 / "
                      "1965 | 0 of 20 / 3 of 20 |\n"),
            std::string::npos)
      << read(at("COMPARE.md"));
}

TEST_F(CompareRepetitions, RefusesTooFew) {
  edit(new_file, [](json& d) {
    json& result = d["results"][0];
    result["samples_us"] = std::vector<double>(8, 20.0);
    while (result["repetitions"].size() > 8) result["repetitions"].erase(8);
  });
  expect_refused({old_file, new_file},
                 new_file +
                     ": stage_c on mission by events_l2_warm has 8 repetitions, expected at least "
                     "9");
}

TEST_F(CompareRepetitions, RefusesRepetitionsThatAreNotTheSamples) {
  for (const int first : {0, 2}) {
    edit(new_file, [&](json& d) { d["results"][0]["repetitions"][1]["first_sample"] = first; });
    expect_refused(
        {old_file, new_file},
        new_file +
            ": /results/0/repetitions: expected all samples of samples_us, each once and "
            "in order");
  }
}

TEST_F(CompareRepetitions, RefusesVariantsThatTookNoTurns) {
  const std::string both =
      make_run("both", {{"stage_c", "mission", 40}, {"sm90", "mission", 20}}, false);
  expect_refused({both, both, "--variant-old", "stage_c", "--variant-new", "sm90"},
                 both +
                     ": stage_c on mission by events_l2_warm and sm90 were not measured in turns, "
                     "expected interleaved samples");
}

TEST_F(CompareRepetitions, RefusesOtherClocks) {
  edit(old_file, [](json& d) { set_clock(d, 1980); });
  edit(new_file, [](json& d) { set_clock(d, 1935); });
  expect_refused({old_file, new_file},
                 new_file +
                     ": stage_c on mission by events_l2_warm ran at a median SM clock of 1935 MHz, "
                     "expected within 2 % of 1980 MHz as in " +
                     old_file);
  // Within it, or not known: compared.
  edit(new_file, [](json& d) { set_clock(d, 1950); });
  EXPECT_EQ(compare_files({old_file, new_file}).exit_code, 0);
  const std::string unknown = make_run("unknown", {{"stage_c", "mission", 20}});
  EXPECT_EQ(compare_files({old_file, unknown}).exit_code, 0);
  EXPECT_NE(read(at("COMPARE.md")).find("| 1980 / unknown |"), std::string::npos);
}

TEST_F(CompareRepetitions, TheFloorCanBeSet) {
  const std::string slower = make_run("slower", {{"stage_c", "mission", 41.2}});
  EXPECT_EQ(compare_files({old_file, slower, "--min-speedup", "0.9"}).exit_code, 1);
  EXPECT_EQ(
      compare_files({old_file, slower, "--min-speedup", "0.9", "--min-effect", "0.05"}).exit_code,
      0);
}

TEST_F(CompareRepetitions, RecordedNoiseIsNoRegression) {
  const Ran ran = compare_files({recorded_run(0), recorded_run(1), "--min-speedup", "0.9"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(read(at("COMPARE.md")).find("| slower |"), std::string::npos);
  EXPECT_EQ(read(at("COMPARE.md")).find("| faster |"), std::string::npos);
}

TEST_F(CompareRepetitions, APlantedSlowDownInRecordedNoiseIsExitCodeOne) {
  const std::string slowed = recorded_run(1, [](json& file) {
    for (json& result : file["results"]) {
      if (result["variant"] != "sm89_mma" || result["shape"] != "long") continue;
      for (json& sample : result["samples_us"]) sample = sample.get<double>() * 1.03;
    }
  });
  EXPECT_EQ(compare_files({recorded_run(0), slowed, "--min-speedup", "0.9"}).exit_code, 1);
  const std::string text = read(at("COMPARE.md"));
  const std::string verdict = text.substr(text.find("**Verdict: "));
  EXPECT_EQ(verdict.rfind("**Verdict: FAIL**\n\n- sm89_mma: long regressed: 0.9", 0), 0U)
      << verdict;
  EXPECT_EQ(std::count(verdict.begin(), verdict.end(), '\n'), 3) << "and nothing else: " << verdict;
}

TEST_F(CompareRepetitions, APlantedWrongResultIsRefusedHoweverFastItIs) {
  const std::string quick = recorded_run(1, [](json& file) {
    for (json& result : file["results"]) {
      if (result["variant"] != "sm89_mma") continue;
      for (json& sample : result["samples_us"]) sample = sample.get<double>() / 2;
    }
  });
  EXPECT_EQ(compare_files({recorded_run(0), quick, "--min-speedup", "0.9"}).exit_code, 0);
  edit(at("odd/" + std::string(kCorrectnessFile)), [](json& summary) {
    for (json& result : summary["results"]) {
      if (result["variant"] != "sm89_mma" || result["shape"] != "long") continue;
      result["pass"] = false;
      result["failure"] = "gate rel_l2: too far off";
    }
  });
  EXPECT_EQ(compare_files({at("even"), at("odd"), "--min-speedup", "0.9"}).exit_code, 1);
  const std::string text = read(at("COMPARE.md"));
  EXPECT_NE(text.find("- sm89_mma: gates of sm89_mma on long failed: gate rel_l2: too far off\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace fp8_sdpa::bench
