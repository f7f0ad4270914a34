// fp8_sdpa_report: its figures, what is chosen for them and how it is drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/report/figures.hpp"
#include "tests/tools/report/report_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

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
  const auto step = [](int batch, int keys, double rate, const json& other = {}) {
    json row = {{"batch", batch},  {"keys", keys},    {"queries", 1},
                {"heads_q", 64},   {"heads_kv", 8},   {"head_dim", 128},
                {"page_size", 64}, {"ragged", false}, {"bytes_per_s", rate}};
    if (other.is_object()) row.update(other);
    return row;
  };
  data.servings = {
      {{"device", {{"name", "H200"}}},
       {"read_bytes_per_s", 4e12},
       {"results",
        {step(8, 8192, 3.5e12), step(8, 512, 2e12), step(1, 512, 5e11), step(8, 2000, 9e12),
         step(8, 2048, 9e12, {{"queries", 8}}), step(8, 2048, 9e12, {{"head_dim", 64}}),
         step(8, 2048, 9e12, {{"page_size", 16}}), step(8, 2048, 9e12, {{"ragged", true}}),
         step(8, 2048, 9e12, {{"heads_q", 8}}), step(8, 2048, 9e12, {{"heads_kv", 4}})}}}};
  json row = {{"shape", "d128_4k"}, {"batch", 2},
              {"heads", 16},        {"seq", 4096},
              {"head_dim", 128},    {"mask", "none"},
              {"int8_us", 1000.0},  {"rmse_int8", 0.002},
              {"ours_us", 500.0},   {"rmse_blocks_both", 0.01}};
  row["flash3_fp8"] = "not there";
  row["cudnn_bf16_us"] = 2000.0;
  row["rmse_cudnn_bf16"] = 0.0003;
  json other = row;
  other["shape"] = "d64_8k";
  data.unquantised = {{{"device", {{"name", "H200"}}}, {"rows", {other, row}}}};
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
  const json& bandwidth = input_of(plan, "bandwidth");
  EXPECT_EQ(bandwidth.at("limit"), 4000.0);
  EXPECT_EQ(bandwidth.at("series"), json::parse(R"json([{"batch": 1, "points": [[512, 500.0]]},
                                {"batch": 8, "points": [[512, 2000.0], [8192, 3500.0]]}])json"));
  EXPECT_EQ(plan_plots({}).missing.size(), 5U) << "a line for each kind";
  // 4 x 2 x 16 x 4096 x 4096 x 128 operations; what was not measured has no point.
  const auto quality = std::find_if(plan.plots.begin(), plan.plots.end(), [](const auto& plot) {
    return plot.figure.file == "quality.svg";
  });
  ASSERT_NE(quality, plan.plots.end());
  EXPECT_EQ(quality->input.at("points"), json::parse(R"json([
    {"name": "blocks, rotated and smoothed", "x": 549.755813888, "y": 0.01},
    {"name": "int8", "x": 274.877906944, "y": 0.002},
    {"name": "peer/cudnn_bf16", "x": 137.438953472, "y": 0.0003}])json"));
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
  EXPECT_EQ(input_of(plan_plots(data), "error_speed").at("points"),
            json::parse(R"json([{"name": "stage_c", "x": 890.0, "y": 0.01}])json"))
      << "a figure that says otherwise than the one above it";
}

TEST(PlotPlan, DrawsEachDeviceByItself) {
  ReportData data = data_for_every_figure();
  data.runs.push_back(data.runs.front());
  data.runs.back().device = "H100";
  std::vector<std::string> files;
  for (const PlannedPlot& plot : plan_plots(data).plots) files.push_back(plot.figure.file);
  EXPECT_EQ(files, (std::vector<std::string>{"tflops_d64.svg", "tflops_d64_2.svg", "latency.svg",
                                             "latency_2.svg", "error_speed.svg",
                                             "error_speed_2.svg", "quality.svg", "bandwidth.svg"}));
}

/// Whether figures are not there because this machine cannot draw any.
bool cannot_draw(const Result<std::vector<Figure>>& figures) {
  const std::string why = figures.status().message();
  return !figures.ok() &&
         (why.find("not installed") != std::string::npos || why == "python3 is not there");
}

/// The texts of an axis's ticks, "x" or "y": of all panels, one after the other.
std::vector<std::string> ticks_of(const std::string& svg, const std::string& axis) {
  std::vector<std::string> ticks;
  for (std::size_t at = 0; (at = svg.find("-" + axis + "tick_", at)) != std::string::npos; ++at) {
    const std::size_t next = svg.find("tick_", at + 8);
    const std::size_t end = svg.find("</text>", at);
    if (end > next) continue;  // a tick without a text
    const std::size_t begin = svg.rfind('>', end) + 1;
    ticks.push_back(svg.substr(begin, end - begin));
  }
  return ticks;
}

TEST(PlotScript, DrawsEveryKind) {
  const PlotPlan plan = plan_plots(data_for_every_figure());
  const auto figures = draw_plots(plan.plots, "");
  if (cannot_draw(figures)) GTEST_SKIP() << "no python3 with matplotlib is installed";
  ASSERT_TRUE(figures.ok()) << figures.status().message();
  EXPECT_EQ(figures->size(), 5U);
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
  const std::string& quality = figures->at(3).svg;
  for (const char* words : {"RMSE (better below)</text>", "blocks, rotated and smoothed</text>",
                            "int8</text>", "cudnn_bf16</text>"}) {
    EXPECT_NE(quality.find(words), std::string::npos) << words;
  }
  const std::string& bandwidth = figures->back().svg;
  for (const char* words : {"GB/s</text>", "keys of a sequence</text>", "batch 8</text>",
                            "reading alone</text>", "8k</text>"}) {
    EXPECT_NE(bandwidth.find(words), std::string::npos) << words;
  }
}

// Of two panels, of errors within a decade or two, and where one peer is a thousand times slower.
TEST(PlotScript, EveryAxisHasTicksWhereThePointsAre) {
  const json line = {{"name", "ours"},
                     {"points", {{512, 9, true}, {640, 9, true}, {2048, 9, true}}}};
  const json panels = {{{"title", "no mask"}, {"series", {line}}},
                       {{"title", "causal mask"}, {"series", {line}}}};
  const auto point = [](const char* name, double event, double graph) {
    return json{{"name", name}, {"event", event}, {"graph", graph}};
  };
  const json rows = {{{"name", "small"},
                      {"points",
                       {point("ours", 4.8, 2.4), point("peer/slow", 2950, 31),
                        point("peer/slower", 4000, 3000)}}}};
  const json errors = {{{"name", "ours"}, {"x", 500}, {"y", 2.3e-3}},
                       {{"name", "peer/a"}, {"x", 20}, {"y", 5e-2}}};
  const auto figures = draw_plots(
      {{{"t.svg", "", "", ""},
        {{"kind", "tflops"}, {"file", "t.svg"}, {"panels", panels}, {"ceiling", nullptr}}},
       {{"l.svg", "", "", ""}, {{"kind", "latency"}, {"file", "l.svg"}, {"rows", rows}}},
       {{"e.svg", "", "", ""}, {{"kind", "error_speed"}, {"file", "e.svg"}, {"points", errors}}}},
      "");
  if (cannot_draw(figures)) GTEST_SKIP() << "no python3 with matplotlib is installed";
  ASSERT_TRUE(figures.ok()) << figures.status().message();
  EXPECT_EQ(ticks_of(figures->at(0).svg, "x"), (std::vector<std::string>{"512", "2k", "512", "2k"}))
      << "under both panels, none over another";
  const std::string& latency = figures->at(1).svg;
  for (const std::string& tick : ticks_of(latency, "x")) EXPECT_LT(std::stod(tick), 50) << tick;
  EXPECT_NE(latency.find(">31 to 2950 →</text>"), std::string::npos);
  EXPECT_NE(latency.find(">3000 to 4000 →</text>"), std::string::npos);
  EXPECT_GE(ticks_of(figures->at(2).svg, "y").size(), 4U);
}

TEST(PlotScript, ReportsWhatItWasNotGivenARightInputFor) {
  const auto figures = draw_plots({{{"a.svg", "", "", ""}, {{"kind", "none"}, {"file", "a.svg"}}}},
                                  find_program("false"));
  ASSERT_FALSE(figures.ok());
  EXPECT_EQ(figures.status().message(), find_program("false") + ": failed");
}

}  // namespace
}  // namespace fp8_sdpa::bench
