// fp8_sdpa_report: files beside the times, files that are broken, and figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/report/figures.hpp"
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
  EXPECT_NE(markdown().find("- `stage_c` on `mission`, Single launches between events, L2 warm: 7"),
            std::string::npos);
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
        "lost/ceilings.json", "lost/sweep.json", "lost/beside_ours.json", "kill.json"}) {
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
                ": none of correctness_summary.json, ceilings.json, sweep.json, verdict.json and "
                "beside_ours.json, expected a result folder; left out\n"
                "fp8_sdpa_report: no folder that can be reported; nothing is written\n");
  EXPECT_FALSE(std::filesystem::exists(at("page")));
  EXPECT_EQ(report({}).exit_code, 2);
}

// --- figures -------------------------------------------------------------------------------------

TEST_F(ReportPage, EmbedsFiguresAndLinksThem) {
  make_run("run", with_peers());
  edit("run/correctness_summary.json", [](json& summary) {
    for (json& result : summary["results"]) result["kernel_rel_l2"] = 0.01;
  });
  ASSERT_EQ(report({at("run")}).exit_code, 0);
  for (const char* file : {"latency.svg", "error_speed.svg"}) {
    const std::string svg = read(at(std::string("page/") + file));
    EXPECT_NE(html().find(svg), std::string::npos) << file;
    EXPECT_NE(markdown().find(std::string("](") + file + ")"), std::string::npos) << file;
  }
}

TEST_F(ReportPage, NamesTheFiguresThatCannotBeDrawn) {
  make_run("run", with_peers());
  const std::string python = script("no_plots", "echo matplotlib is not installed; exit 3");
  const Ran ran = report({at("run"), "--python", python});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::string line =
      "Figures (" + python + ": matplotlib is not installed): Latency of small shapes.";
  EXPECT_NE(ran.out.find("left out: " + line + "\n"), std::string::npos) << ran.out;
  EXPECT_NE(shown_html(html()).find(line), std::string::npos);
  EXPECT_EQ(html().find("<figure"), std::string::npos);
  EXPECT_EQ(row_with(rows_of_html(html()), {"mission"}).at(1), "10.00");
}

/// Ours and two peers over two lengths, and what every figure needs.
ReportData data_for_every_figure() {
  ReportData data;
  ReportRun run;
  run.folder = "results/$run & more";
  run.device = "H200";
  for (const char* variant : {"stage_c", "sm90_a", "sm90_b", "peer/<x>", "peer/wrong"}) {
    for (const int length : {512, 2048}) {
      PerfSeries series;
      series.variant = variant;
      series.shape = length == 512 ? "mission" : "long";
      series.sizes.batch = series.sizes.heads_q = series.sizes.heads_kv = 1;
      series.sizes.seq_q = series.sizes.seq_kv = length;
      series.sizes.head_dim = 64;
      series.method = name_of(Method::kEventsWarm);
      series.times = {19.0 - static_cast<double>(run.series.size()), 20, 15, 1};
      series.tflops = 100.0 + static_cast<double>(run.series.size());
      GateVerdict& verdict = run.verdicts[{variant, series.shape}];
      verdict.judged = 1;
      verdict.passed = series.variant == "peer/wrong" ? 0 : 1;
      verdict.kernel_rel_l2 = 0.01;
      run.series.push_back(series);
    }
  }
  // Another problem of the length 2048, of one kernel alone: no point of a line.
  run.series.push_back(run.series[1]);
  run.series.back().shape = "batch2_long";
  run.series.back().sizes.batch = 2;
  run.series.back().tflops = 900;
  run.verdicts[{"stage_c", "batch2_long"}] = run.verdicts[{"stage_c", "long"}];
  data.runs = {run};
  data.ceilings = {{{"device", {{"name", "H200"}}},
                    {"results", {{{"name", "fp8_gemm"}, {"unit", "FLOP/s"}, {"value", 2e14}}}}}};
  return data;
}

const json& input_of(const PlotPlan& plan, const std::string& kind) {
  static const json none;
  for (const PlannedPlot& plot : plan.plots) {
    if (plot.input.at("kind") == kind) return plot.input;
  }
  return none;
}

TEST(PlotPlan, ChoosesWhatIsDrawn) {
  const PlotPlan plan = plan_plots(data_for_every_figure());
  EXPECT_EQ(plan.missing, std::vector<std::string>{});
  const json& tflops = input_of(plan, "tflops");
  EXPECT_EQ(tflops.at("file"), "tflops_d64.svg");
  EXPECT_EQ(tflops.at("ceiling"), 200.0);
  // Ours by the fastest variant at each length; a peer that failed its gates is marked.
  EXPECT_EQ(tflops.at("panels"), json::parse(R"json([{"title": "no mask", "series": [
    {"name": "ours", "points": [[512, 104.0, true], [2048, 105.0, true]]},
    {"name": "peer/<x>", "points": [[512, 106.0, true], [2048, 107.0, true]]},
    {"name": "peer/wrong", "points": [[512, 108.0, false], [2048, 109.0, false]]}]}])json"));
  EXPECT_EQ(input_of(plan, "latency").at("rows"), json::parse(R"json([
    {"name": "mission: 1 × 1 × 512 × 64", "points": [
      {"name": "ours", "event": 15.0, "graph": null},
      {"name": "peer/<x>", "event": 13.0, "graph": null}]},
    {"name": "long: 1 × 1 × 2048 × 64", "points": [
      {"name": "ours", "event": 14.0, "graph": null},
      {"name": "peer/<x>", "event": 12.0, "graph": null}]},
    {"name": "batch2_long: 2 × 1 × 2048 × 64", "points": [
      {"name": "ours", "event": 18.0, "graph": null}]}])json"));
  EXPECT_EQ(input_of(plan, "error_speed").at("points"),
            json::parse(R"json([{"name": "stage_c", "x": 900.0, "y": 0.01}])json"))
      << "the largest problem";
  EXPECT_EQ(plan_plots({}).plots.size(), 0U);
  EXPECT_EQ(plan_plots({}).missing.size(), 3U) << "a line for each kind";
}

TEST(PlotPlan, OfSeveralRunsTakesOurSlowestAndAPeersFastest) {
  ReportData data = data_for_every_figure();
  const json of_one = input_of(plan_plots(data), "tflops").at("panels").at(0).at("series");
  data.runs.push_back(data.runs.front());
  for (PerfSeries& series : data.runs.back().series) {
    series.times.p50 += 1;
    series.tflops -= 10;
  }
  json lines = input_of(plan_plots(data), "tflops").at("panels").at(0).at("series");
  EXPECT_EQ(lines.at(0).at("points"), json::parse("[[512, 94.0, true], [2048, 95.0, true]]"));
  EXPECT_EQ(lines.at(1), of_one.at(1));
}

TEST(PlotPlan, DrawsEachDeviceByItself) {
  ReportData data = data_for_every_figure();
  data.runs.push_back(data.runs.front());
  data.runs.back().device = "H100";
  std::vector<std::string> files;
  for (const PlannedPlot& plot : plan_plots(data).plots) files.push_back(plot.figure.file);
  EXPECT_EQ(files,
            (std::vector<std::string>{"tflops_d64.svg", "tflops_d64_2.svg", "latency.svg",
                                      "latency_2.svg", "error_speed.svg", "error_speed_2.svg"}));
}

TEST(PlotScript, DrawsEveryKind) {
  const PlotPlan plan = plan_plots(data_for_every_figure());
  const auto figures = draw_plots(plan.plots, "");
  if (!figures.ok() && (figures.status().message().find("not installed") != std::string::npos ||
                        figures.status().message() == "python3 is not there")) {
    GTEST_SKIP() << "no python3 with matplotlib is installed";
  }
  ASSERT_TRUE(figures.ok()) << figures.status().message();
  EXPECT_EQ(figures->size(), 3U);
  for (const Figure& figure : *figures) {
    const std::string stem = figure.file.substr(0, figure.file.find('.'));
    EXPECT_EQ(figure.svg.rfind("<svg ", 0), 0U) << figure.file;
    EXPECT_NE(figure.svg.find("</text>"), std::string::npos) << figure.file << ": text is text";
    EXPECT_NE(figure.svg.find("var(--plot-ink, #"), std::string::npos) << figure.file;
    for (const char* left : {"<metadata", "#010101", "#020202", "#030303", "#040404", "<x>"}) {
      EXPECT_EQ(figure.svg.find(left), std::string::npos) << figure.file << ": " << left;
    }
    for (std::size_t at = 0; (at = figure.svg.find(" id=\"", at)) != std::string::npos; ++at) {
      EXPECT_EQ(figure.svg.compare(at + 5, stem.size() + 1, stem + "-"), 0) << figure.file;
    }
  }
  const std::string& tflops = figures->front().svg;
  for (const char* words : {"TFLOP/s</text>", "sequence length S (keys)</text>", "2k</text>",
                            "&lt;x&gt;</text>", "FP8 GEMM ceiling</text>"}) {
    EXPECT_NE(tflops.find(words), std::string::npos) << words;
  }
}

TEST(PlotScript, ReportsWhatItWasNotGivenARightInputFor) {
  const auto figures = draw_plots({{{"a.svg", "", "", ""}, {{"kind", "none"}, {"file", "a.svg"}}}},
                                  find_program("false"));
  ASSERT_FALSE(figures.ok());
  EXPECT_EQ(figures.status().message(), find_program("false") + ": failed");
}

}  // namespace
}  // namespace fp8_sdpa::bench
