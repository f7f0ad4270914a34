// fp8_sdpa_report --run-log: the run log; and the table against a peer with its verdict.
#include "benchmarks/report/run_log.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "benchmarks/compare/elite.hpp"
#include "benchmarks/run/peer_table.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

TEST(PeerVerdict, HasAWordForEveryRatio) {
  EXPECT_EQ(peer_verdict(2).word, ">= 2x");
  EXPECT_EQ(peer_verdict(1.999).word, "faster");
  EXPECT_EQ(peer_verdict(1.051).word, "faster");
  EXPECT_EQ(peer_verdict(1.05).word, "parity");
  EXPECT_EQ(peer_verdict(0.95).word, "parity");
  EXPECT_EQ(peer_verdict(0.949).word, "slower");
  EXPECT_EQ(peer_verdict(0.3).word, "slower");
  EXPECT_EQ(peer_verdict(0.299).word, "much slower");
  EXPECT_EQ(peer_verdict(0.299).next_step, "check that tensor cores are engaged");
  for (const double none : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(peer_verdict(none).word, "not measured");
  }
}

TEST(PeerTable, HoldsTheRatiosAndOneVerdict) {
  EXPECT_EQ(peer_table("cuDNN", {{"mission", 30, 10}, {"small", 10, 10}}),
            "| shape | cuDNN us | ours us | ratio |\n|---|---|---|---|\n"
            "| mission | 30.00 | 10.00 | 3.00x |\n| small | 10.00 | 10.00 | 1.00x |\n"
            "\nRatio: average 2.00x, best 3.00x, worst 1.00x.\n"
            "\n**Verdict: >= 2x**. Next: keep it: add it to the elite and to the run log.\n");
  for (const PeerTimes& bad : {PeerTimes{"x", 0, 1}, PeerTimes{"x", 1, std::nan("")}}) {
    const std::string table = peer_table("cuDNN", {{"mission", 30, 10}, bad});
    EXPECT_NE(table.find("| x | - | - | - |"), std::string::npos) << table;
    EXPECT_NE(table.find("**Verdict: not measured**"), std::string::npos) << table;
  }
  EXPECT_NE(peer_table("cuDNN", {}).find("not measured"), std::string::npos);
}

class RunLogTool : public ToolTest {
 protected:
  Ran report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--run-log", "--out", at("runs")});
    return run(FP8_SDPA_REPORT_BINARY, arguments);
  }
  void make_profile() const {
    write(at("ncu/verdict.json"),
          R"({"schema_version": 1, "shape": "mission", "variant": "fast", "kernel": "k",
              "launches": 1, "verdict": "latency-bound", "because": "both < 40 %",
              "next_step": "look at the warp stalls", "metrics": {},
              "timestamp": "2026-11-20T22:07:10Z", "backend": "device",
              "git": {"sha": "0", "branch": "main", "dirty": false},
              "device": {"name": "NVIDIA H200"}})");
  }
  std::string text_of(const Ran& ran) const {
    const std::string head = "written: ";
    EXPECT_EQ(ran.out.rfind(head, 0), 0U) << ran.out << ran.err;
    return read(ran.out.substr(head.size(), ran.out.size() - head.size() - 1));
  }
  std::string folder(const std::vector<MadeSeries>& made) const {
    make_run("run", made);
    return at("run");
  }
};

TEST_F(RunLogTool, HoldsEverySection) {
  const std::string run = folder({{"stage_c", "mission", 40},
                                  {"stage_c", "small", 10},
                                  {"fast", "mission", 10},
                                  {"fast", "small", 10},
                                  {"partial", "mission", 5}});
  make_profile();
  const Elite elite{"stage_c",
                    "events_l2_warm",
                    "device",
                    "NVIDIA H200",
                    {{"fast", 2, {{"mission", 4}, {"small", 1}}, "then", "abc"}}};
  write(at("elite.json"), to_json(elite).dump());
  const Ran ran = report({run, at("ncu"), "--elite", at("elite.json")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string text = text_of(ran);
  std::size_t last = 0;
  for (const char* part : {"# Run log, ",
                           "## Environment\n",
                           "- NVIDIA H200, CUDA 13.0, driver unknown",
                           "- commit 0123456789abcdef on main, ",
                           "## Correctness\n",
                           "5 of 5 cases passed.",
                           "| fast | mission | 0.0000 | 0.0000 | 1 of 1 |",
                           "## Baseline\n",
                           "| mission | events_l2_warm | 40.00 | 40.00 | 40.00 | 0.00 |",
                           "## Profile\n",
                           "fast on mission: **latency-bound** (both < 40 %)",
                           "## Variants tried\n",
                           "| variant | mission | small | speed-up |",
                           "| stage_c | 40.00 | 10.00 | 1.000x |",
                           "| fast | 10.00 | 10.00 | 2.000x |",
                           "| partial | 5.00 | - | - |",
                           "## Elite\n",
                           "1. fast 2.000x (then, commit abc)",
                           "## Next steps\n",
                           "- fast on mission is latency-bound: look at the warp stalls.\n"}) {
    const std::size_t found = text.find(part, last);
    ASSERT_NE(found, std::string::npos) << part << " is not there, or not in order:\n" << text;
    last = found;
  }
}

TEST_F(RunLogTool, SaysWhatFailedAndWhatIsNotThere) {
  make_run("run", {{"stage_c", "mission", 40, Method::kEventsWarm, false}});
  std::filesystem::remove(at("run/" + std::string(kPerfFile)));
  const Ran ran = report({at("run")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string text = text_of(ran);
  for (const char* part :
       {"0 of 1 cases passed.", "- stage_c on mission, seed 0: ", "no times were taken.",
        "None among the folders given.", "None yet: fp8_sdpa_elite keeps it.",
        "- GREEN before FAST: mend what failed in "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

TEST_F(RunLogTool, WithoutAProfileItNamesTheCommandThatTakesOne) {
  const Ran ran = report({folder({{"stage_c", "mission", 40}, {"fast", "mission", 10}})});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(text_of(ran).find("- No profile yet: `./sdpa profile mission 0 3 --variant fast`.\n"),
            std::string::npos);
}

TEST_F(RunLogTool, NamesTheFileByTheMinuteAndNeverReplacesOne) {
  constexpr std::time_t kWhen = 1795212430;  // 2026-11-20 22:07:10 UTC
  for (const char* name : {"run_20261120_2207.md", "run_20261120_2207_2.md"}) {
    const auto path = write_run_log(at("runs"), name, kWhen);
    ASSERT_TRUE(path.ok()) << path.status().message();
    EXPECT_EQ(*path, at("runs") + "/" + name);
  }
  EXPECT_EQ(read(at("runs/run_20261120_2207.md")), "run_20261120_2207.md");
}

TEST_F(RunLogTool, RefusesWhatIsNoResultFolder) {
  const Ran none = report({at("nowhere")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err,
            "fp8_sdpa_report: " + at("nowhere") +
                ": neither correctness_summary.json nor verdict.json, expected a folder that "
                "fp8_sdpa_run or fp8_sdpa_profile wrote\n");
  const std::string run = folder({{"stage_c", "mission", 40}});
  write(at("elite.json"), "{}");
  const Ran elite = report({run, "--elite", at("elite.json")});
  EXPECT_EQ(elite.exit_code, 2);
  EXPECT_EQ(elite.err,
            "fp8_sdpa_report: " + at("elite.json") + ": /schema_version: got null, expected 1\n");
  std::filesystem::remove(at("run/" + std::string(kBuildMetaFile)));
  const Ran less = report({run});
  EXPECT_EQ(less.exit_code, 2);
  EXPECT_EQ(less.err, "fp8_sdpa_report: " + at("run/build_meta.json") +
                          ": No such file or directory, expected a readable JSON file\n");
  EXPECT_FALSE(std::filesystem::exists(at("runs")));
}

}  // namespace
}  // namespace fp8_sdpa::bench
