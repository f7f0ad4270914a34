// fp8_sdpa_report RUN_DIR...: a page of result folders, as HTML and as Markdown; with --run-log the
// run log instead. Exit code 0; 1 where a gate failed in what is reported or a file was left out as
// unusable; 2 for bad usage and where nothing can be reported.
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/report/data.hpp"
#include "benchmarks/report/document.hpp"
#include "benchmarks/report/figures.hpp"
#include "benchmarks/report/page.hpp"
#include "benchmarks/report/run_log.hpp"
#include "reference/formats/text.hpp"

namespace {

using namespace fp8_sdpa::bench;

struct ReportRequest {
  RunLogRequest log;
  bool run_log = false;
  std::string kill_matrix = "results/kill_matrix.json";
  std::string python;
  std::string out;
};

int write_log(const CommandLine& line, const ReportRequest& request) {
  const std::time_t now = std::time(nullptr);
  const auto text = run_log(request.log, now);
  if (!text.ok()) return refuse(line, text.status().message());
  const std::string root = request.out.empty() ? "results/runs" : request.out;
  const auto path = write_run_log(root, *text, now);
  if (!path.ok()) return refuse(line, path.status().message());
  std::printf("written: %s\n", fp8_sdpa::reference::one_line(*path).c_str());
  return kExitPass;
}

/// The figures that can be drawn; why others cannot is added to `left_out`.
std::vector<Figure> figures_of(const ReportData& data, const std::string& python,
                               std::vector<std::string>& left_out) {
  const PlotPlan plan = plan_plots(data);
  left_out = plan.missing;
  auto figures = draw_plots(plan.plots, python);
  if (figures.ok()) return std::move(*figures);
  std::string line = "Figures (" + figures.status().message() + "):";
  for (const PlannedPlot& plot : plan.plots) {
    line += (&plot == plan.plots.data() ? " " : "; ") + plot.figure.title;
  }
  left_out.push_back(line + ".");
  return {};
}

int write_report(const CommandLine& line, const ReportRequest& request) {
  const ReportData data = read_report_data(request.log.folders, request.kill_matrix);
  for (const std::string& refused : data.refused) refuse(line, refused);
  if (data.empty()) return refuse(line, "no folder that can be reported; nothing is written");

  std::vector<std::string> left_out;
  const std::vector<Figure> figures = figures_of(data, request.python, left_out);
  const Document page = report_page(data, figures, left_out, std::time(nullptr));
  const std::string root = (request.out.empty() ? "results/report" : request.out) + "/";
  std::vector<std::pair<std::string, std::string>> files = {{"report.html", to_html(page)},
                                                            {"report.md", to_markdown(page)}};
  for (const Figure& figure : figures) files.emplace_back(figure.file, figure.svg);
  for (const auto& [name, text] : files) {
    if (const auto s = replace_file(root + name, text); !s.ok()) return refuse(line, s.message());
  }
  for (const std::string& missing : left_out) std::printf("left out: %s\n", missing.c_str());
  std::printf("written: %sreport.html, %sreport.md and %zu figures\n",
              fp8_sdpa::reference::one_line(root).c_str(),
              fp8_sdpa::reference::one_line(root).c_str(), figures.size());
  const GateCount gates = gate_count(data);
  const bool green = gates.passed == gates.judged && data.refused.empty();
  return green ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Writes report.html, one page that needs no network, and report.md with the same figures and "
      "tables, from result folders. With --run-log: the run log, run_YYYYMMDD_HHMM.md.",
      "fp8_sdpa_report");
  ReportRequest request;
  request.log.elite = "results/elite.json";
  request.log.baseline = "stage_c";
  line.add("RUN_DIR", request.log.folders,
           "Folders of fp8_sdpa_run, peers, ceilings, sweep and profile")
      .required();
  line.add("--run-log", request.run_log, "Write the run log instead of the page");
  line.add("--kill-matrix", request.kill_matrix, "What wrong_kernels wrote");
  line.add("--python", request.python,
           "The interpreter that draws the figures. Default: a python3 that has matplotlib");
  line.add("--elite", request.log.elite, "The elite file, for the run log");
  line.add("--baseline", request.log.baseline,
           "The variant that others are measured by in the run log");
  line.add("--out", request.out, "Folder to write into. Default: results/report, or results/runs");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] {
    return request.run_log ? write_log(line, request) : write_report(line, request);
  });
}
