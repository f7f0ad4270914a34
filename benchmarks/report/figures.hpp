// The figures of a report: which of them the data allows, and what each shows, is decided here;
// benchmarks/report/plots/plots.py draws them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/report/data.hpp"
#include "benchmarks/report/document.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// A figure that is still to be drawn, and the script's input for it.
struct PlannedPlot {
  Figure figure;
  nlohmann::json input;
};

struct PlotPlan {
  std::vector<PlannedPlot> plots;
  std::vector<std::string> missing;  ///< a line for each kind that there is no data for
};

/// Of each kind what there is data for, by device: TFLOP/s over sequence length, a figure per head
/// dim; latency of small shapes; error against speed on the largest problem, and from bf16 to bf16;
/// the rate of decode steps.
PlotPlan plan_plots(const ReportData& data);

/// Draws them with `python`, or, if that is empty, with the first python3 that has matplotlib.
/// kUnsupported, in one line, where there is none or it fails.
Result<std::vector<Figure>> draw_plots(const std::vector<PlannedPlot>& plots,
                                       const std::string& python);

}  // namespace fp8_sdpa::bench
