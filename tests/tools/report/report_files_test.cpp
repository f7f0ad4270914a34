// fp8_sdpa_report: files beside the times, and files that are broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/report/report_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

TEST_F(ReportPage, ShowsResourcesWithTheirOccupancy) {
  make_run("run", {{"sm80_mma", "mission", 40}});
  edit("run/build_meta.json", [](json& meta) {
    for (const int registers : {90, 116}) {
      meta["build"]["ptxas"].push_back({{"kernel", "k"},
                                        {"variant", "sm80_mma"},
                                        {"arch", "sm_90a"},
                                        {"registers", registers},
                                        {"smem_bytes", 49152},
                                        {"static_smem_bytes", 0},
                                        {"dynamic_smem_bytes", 49152},
                                        {"spill_stores", 4},
                                        {"spill_loads", 8}});
    }
  });
  ASSERT_EQ(report({at("run")}).exit_code, 0);
  const Rows rows = rows_of_html(html());
  // 256 threads of 120 registers (allocated by 256 a warp): two blocks of 64 warps' room.
  EXPECT_EQ(row_with(rows, {"sm80_mma", "256"}),
            (std::vector<std::string>{"sm80_mma", "256", "116", "49152", "12", "2", "25.0 %",
                                      "registers"}));
  EXPECT_EQ(row_with(rows, {"commit"}).at(1), "0123456789abcdef on main");
  EXPECT_EQ(row_with(rows, {"device"}).at(1), "NVIDIA H200, 132 multiprocessors");
}

TEST_F(ReportPage, CountsTheKillMatrix) {
  make_run("run", {{"stage_c", "mission", 40}});
  const auto fault = [](const char* name, bool killed, json peers) {
    return json{{"name", name},           {"what", "w"},
                {"kind", "kernel"},       {"place", "p"},
                {"killed", killed},       {"strongest_gate", "lse"},
                {"strongest_trial", "t"}, {"peers_pass", std::move(peers)}};
  };
  write(at("kill.json"),
        json{{"schema_version", 1},
             {"faults",
              {fault("one", true, {{"Theirs", true}}), fault("two", true, {{"Theirs", false}}),
               fault("three", false, json::object())}}}
            .dump());
  ASSERT_EQ(report({at("run")}).exit_code, 0);
  const Rows rows = rows_of_html(html());
  EXPECT_EQ(row_with(rows, {"this suite"}), (std::vector<std::string>{"this suite", "1", "3"}));
  EXPECT_EQ(row_with(rows, {"Theirs, published"}),
            (std::vector<std::string>{"Theirs, published", "1", "2"}));
  EXPECT_EQ(row_with(rows, {"one"}),
            (std::vector<std::string>{"one", "w", "p", "yes", "lse", "t", "Theirs"}));
  EXPECT_EQ(row_with(rows, {"three"}).at(3), "NO");
}

TEST_F(ReportPage, ShowsIntervalsAndMarksAndRefusesAnotherVersionOfTimes) {
  make_run("run", {{"stage_c", "mission", 40}});
  edit("run/perf_baseline.json", [](json& perf) {
    perf["results"][0]["p50_interval_us"] = {39.5, 40.25};
    perf["results"][0]["marked_samples"] = 7;
  });
  ASSERT_EQ(report({at("run")}).exit_code, 0);
  const auto row = row_with(rows_of_html(html()), {"mission"});
  EXPECT_NE(std::find(row.begin(), row.end(), "39.50 to 40.25"), row.end());
  const std::string line = "`stage_c` on `mission`, Single launches between events, L2 warm: 7";
  const std::string fold = "<details><summary>Samples below the expected clock: 1 series</summary>";
  EXPECT_NE(markdown().find(fold + "\n\n- " + line + "\n\n</details>"), std::string::npos)
      << markdown();
  EXPECT_NE(html().find(fold + "\n<ul>\n<li><code>stage_c</code>"), std::string::npos) << html();
  edit("run/perf_baseline.json", [](json& perf) { perf["schema_version"] = 3; });
  const Ran later = report({at("run")});
  EXPECT_EQ(later.exit_code, 1);
  EXPECT_EQ(later.err, "fp8_sdpa_report: " + at("run/perf_baseline.json") +
                           ": /schema_version: got 3, expected 2; left out\n");
}

TEST_F(ReportPage, ShowsCeilingsAndScaling) {
  make_run("run", {{"stage_c", "mission", 40}});
  // Of a file whose schema version is that of device limits and sweeps.
  json head = read_json_file(at("run/correctness_summary.json"));
  head.erase("all_pass");
  head["left_out"] = json::array();
  head["results"] = {{{"name", "fp8_gemm"},
                      {"what", "a multiply"},
                      {"unit", "FLOP/s"},
                      {"value", 1.3421772800e14},
                      {"operations", 1e12},
                      {"per_clock_per_sm", nullptr},
                      {"p50_us", 5},
                      {"p90_us", 5},
                      {"min_us", 5},
                      {"std_us", 0},
                      {"samples_us", {5}}}};
  write(at("limits/ceilings.json"), head.dump());
  const auto place = [](const char* shape, int length, double us, int mebi, double departure) {
    return json{{"variant", "v"},
                {"shape", shape},
                {"level", 13},
                {"B", 1},
                {"H", 8},
                {"S", length},
                {"D", 64},
                {"tile_m", 64},
                {"tile_n", 64},
                {"steps", 1},
                {"events_us", us},
                {"graph_us", us},
                {"tflops", 1},
                {"tensor_bytes", 1024},
                {"model_us", 4},
                {"device_bytes", mebi << 20},
                {"departure", departure}};
  };
  head["results"] = {place("s32_bh8", 32, 5, 2, 0.25), place("s64_bh2", 64, 4.1, 3, 0.025)};
  head["fits"] = {{{"variant", "v"},
                   {"launch_us", 2.5},
                   {"per_step_us", 0.25},
                   {"rms_departure", 0.125},
                   {"places", 2}}};
  write(at("sweep/sweep.json"), head.dump());
  const Ran ran = report({at("run"), at("limits"), at("sweep")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const Rows rows = rows_of_html(html());
  EXPECT_EQ(
      row_with(rows, {"fp8_gemm"}),
      (std::vector<std::string>{"fp8_gemm", "1.342e+14", "FLOP/s", "a multiply", "NVIDIA H200"}));
  // 4 * 8 * 512 * 512 * 64 FLOP in 40 us are 13.42 TFLOP/s.
  const auto mission = row_with(rows, {"mission"});
  EXPECT_NE(std::find(mission.begin(), mission.end(), "10.0 %"), mission.end());
  EXPECT_EQ(row_with(rows, {"v"}),
            (std::vector<std::string>{"v", "2.50", "0.2500", "2", "12.5 %", "s32_bh8", "+25.0 %",
                                      "2.0 to 3.0", "NVIDIA H200"}));
}

TEST_F(ReportPage, ShowsFlashAttention3BesideOurs) {
  make_run("run", {{"stage_c", "mission", 40}});
  write(at("fa3/beside_ours.json"), R"({"device": "NVIDIA H200", "cells": [
      {"cell": "mission", "mask": "causal", "B": 1, "H": 8, "S": 512, "D": 64, "variant": "fast",
       "ok": true, "fa3_samples_us": [14, 15, 16], "ours_samples_us": [10, 10, 10],
       "fa3_graph_samples_us": [9], "ours_graph_samples_us": [6],
       "fa3_tflops": 38, "ours_tflops": 57, "fa3_rel_fp32": 0.02, "ours_rel_fp32": 0.01}]})");
  ASSERT_EQ(report({at("run"), at("fa3")}).exit_code, 0);
  EXPECT_NE(html().find("GREEN: 1 of 1 cases"), std::string::npos) << "no gate of ours judged it";
  const Rows rows = rows_of_html(html());
  const auto row = row_with(rows, {"mission_causal", "10.00", "15.00", "1.50x"});
  ASSERT_FALSE(row.empty()) << html();
  EXPECT_EQ(row.back(), "1 × 8 × 512 × 64, causal");
  EXPECT_FALSE(row_with(rows, {"mission_causal", "6.00", "9.00", "1.50x"}).empty());
}

// --- bad input -----------------------------------------------------------------------------------

TEST_F(ReportPage, GoesOnWithoutAFileThatIsBroken) {
  make_run("good", {{"stage_c", "mission", 40}});
  make_run("bad", {{"fast", "mission", 10}});
  const std::string whole = read(at("bad/perf_baseline.json"));
  const std::vector<std::pair<std::string, std::string>> contents = {
      {whole.substr(0, whole.size() / 2), ""},
      {R"({"hello": 1})", "/schema_version: got null, expected 2"},
      {"[]", "/schema_version: got null, expected 2"},
      {replaced(whole, "\"p50_us\":10.0", "\"p50_us\":\"10\""),
       "not of its schema: <root>[results][0][p50_us] "},
      {replaced(whole, "NVIDIA H200", "Other"),
       "/device/name: got Other, expected NVIDIA H200 as in correctness_summary.json"}};
  for (const auto& [text, reason] : contents) {
    write(at("bad/perf_baseline.json"), text);
    const Ran ran = report({at("good"), at("bad")});
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.err.find("fp8_sdpa_report: " + at("bad/perf_baseline.json") + ": "), 0U);
    EXPECT_NE(ran.err.find(reason), std::string::npos) << ran.err;
    EXPECT_TRUE(ran.err.ends_with("; left out\n")) << ran.err;
    const Rows rows = rows_of_html(html());
    EXPECT_EQ(row_with(rows, {"mission"}).at(1), "40.00");
    EXPECT_FALSE(row_with(rows, {"fast", "mission"}).empty()) << "its errors are still there";
    EXPECT_NE(markdown().find("## Left out"), std::string::npos);
    EXPECT_NE(markdown().find(at("bad/perf_baseline.json")), std::string::npos);
  }
}

TEST_F(ReportPage, NamesEveryOtherFileThatIsBroken) {
  for (const char* file :
       {"run/build_meta.json", "run/correctness_summary.json", "lost/verdict.json",
        "lost/ceilings.json", "lost/sweep.json", "lost/serving.json", "lost/unquantised.json",
        "lost/beside_ours.json", "kill.json"}) {
    make_run("run", {{"stage_c", "mission", 40}});
    make_run("other", {{"stage_c", "mission", 40}});
    write(at(file), "{\"schema_version\": 1");
    std::vector<std::string> folders = {at("run"), at("other")};
    if (std::string(file).rfind("lost", 0) == 0) folders.push_back(at("lost"));
    const Ran ran = report(folders);
    EXPECT_EQ(ran.exit_code, 1) << file;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.err.find("fp8_sdpa_report: " + at(file) + ": "), 0U) << ran.err;
    EXPECT_NE(ran.err.find("; left out"), std::string::npos) << ran.err;
    EXPECT_EQ(row_with(rows_of_html(html()), {"mission"}).at(1), "40.00");
    std::filesystem::remove_all(at("lost"));
    std::filesystem::remove(at("kill.json"));
  }
}

TEST_F(ReportPage, WritesNothingWhereNothingCanBeReported) {
  const Ran ran = report({at("nowhere")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err,
            "fp8_sdpa_report: " + at("nowhere") +
                ": none of correctness_summary.json, ceilings.json, sweep.json, serving.json, "
                "unquantised.json, verdict.json and beside_ours.json, expected a result folder; "
                "left out\n"
                "fp8_sdpa_report: no folder that can be reported; nothing is written\n");
  EXPECT_FALSE(std::filesystem::exists(at("page")));
  EXPECT_EQ(report({}).exit_code, 2);
}

}  // namespace
}  // namespace fp8_sdpa::bench
