#include "benchmarks/report/figures.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "benchmarks/report/page.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/command/text.hpp"
#include "dispatch/variant.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

constexpr Method kEvents = Method::kEventsWarm;

/// Files and titles of one run's figures.
struct RunNames {
  std::string slug;   ///< of file names: letters, digits, underscores
  std::string title;  ///< " (ladder)"
};

/// The folder's own name; the number of the run where two have the same.
std::vector<RunNames> names_of(const std::vector<ReportRun>& runs) {
  std::vector<RunNames> names;
  std::set<std::string> taken;
  for (const ReportRun& run : runs) {
    std::filesystem::path path(run.folder);
    if (!path.has_filename()) path = path.parent_path();
    std::string slug = path.filename().string();
    for (char& c : slug) {
      if (!reference::is_name(std::string(1, c))) c = '_';
    }
    if (slug.empty() || !taken.insert(slug).second) {
      slug += "_" + std::to_string(names.size() + 1);
      taken.insert(slug);
    }
    names.push_back({slug, " (" + slug + ")"});
  }
  return names;
}

void add(PlotPlan& plan, Figure figure, const char* kind, json input) {
  input["kind"] = kind;
  input["file"] = figure.file;
  plan.plots.push_back({std::move(figure), std::move(input)});
}

std::string shown_name(const ReportCell& cell) {
  return is_peer(cell.variant) ? cell.variant : family_of(cell.variant);
}

// --- TFLOP/s over S ------------------------------------------------------------------------------

/// Lines of one head dim and mask: a family's fastest variant at each length, each peer. A peer
/// whose output failed its gates is shown, and says so.
json series_of(const ReportRun& run, int head_dim, Mask mask) {
  struct Line {
    std::string family;
    bool green = true;
    std::map<std::int64_t, double> points;
  };
  std::map<std::string, Line> lines;
  for (const ReportCell& cell : run.cells) {
    const bool green = run.is_green(cell);
    if (cell.method != name_of(kEvents) || cell.shape.head_dim != head_dim ||
        cell.shape.mask != mask || (!green && !is_peer(cell.variant))) {
      continue;
    }
    Line& line = lines[shown_name(cell)];
    line.family = family_of(cell.variant);
    line.green = line.green && green;
    double& best = line.points[cell.shape.seq_kv];
    best = std::max(best, cell.tflops);
  }
  json series = json::array();
  for (const auto& [name, line] : lines) {
    json list = json::array();
    for (const auto& [length, tflops] : line.points) list.push_back({length, tflops});
    series.push_back({{"name", name + (line.green ? "" : ", gates failed")},
                      {"family", line.family},
                      {"points", std::move(list)}});
  }
  return series;
}

bool has_two_lengths(const json& series) {
  return std::any_of(series.begin(), series.end(),
                     [](const json& line) { return line.at("points").size() > 1; });
}

void plan_tflops(const ReportData& data, const std::vector<RunNames>& names, PlotPlan& plan) {
  bool any = false;
  for (std::size_t i = 0; i < data.runs.size(); ++i) {
    const ReportRun& run = data.runs[i];
    std::set<std::pair<int, Mask>> panels;
    for (const ReportCell& cell : run.cells) panels.insert({cell.shape.head_dim, cell.shape.mask});
    for (const auto& [head_dim, mask] : panels) {
      json series = series_of(run, head_dim, mask);
      if (!has_two_lengths(series)) continue;
      any = true;
      const double ceiling = data.ceiling_tflops(run.device);
      const std::string dims = std::to_string(head_dim);
      const bool causal = mask == Mask::kCausal;
      add(plan,
          {"tflops_" + names[i].slug + "_d" + dims + (causal ? "_causal" : "") + ".svg",
           "TFLOP/s over sequence length, D = " + dims + (causal ? ", causal" : "") +
               names[i].title,
           std::string("Median of single launches between events, L2 warm. Each family by its "
                       "fastest variant at that length, of the problem with the most TFLOP/s.") +
               (ceiling > 0 ? "" : " No ceiling was measured."),
           ""},
          "tflops",
          {{"series", std::move(series)}, {"ceiling", ceiling > 0 ? json(ceiling) : json()}});
    }
  }
  if (!any) {
    plan.missing.emplace_back(
        "Figure of TFLOP/s over sequence length: it needs two lengths of one head dim in a run.");
  }
}

// --- latency of small shapes ---------------------------------------------------------------------

/// A measured cell; nullptr where there is none or, of a peer, where its gates failed.
const ReportCell* green_cell(const ReportRun& run, const std::string& variant,
                             const std::string& shape, Method method) {
  const ReportCell* cell = run.find(variant, shape, name_of(method));
  return cell != nullptr && run.is_green(*cell) ? cell : nullptr;
}

json time_or_null(const ReportCell* cell) {
  return cell == nullptr ? json() : json(cell->times.p50);
}

/// Shapes that a launch of ours does in less time than this are small, in microseconds.
constexpr double kSmallUs = 20;
constexpr std::size_t kMostRows = 12;

json latency_rows(const ReportRun& run, const std::vector<std::string>& shapes) {
  struct Row {
    std::string variant;
    double us;  ///< on all of the shapes
    json points;
  };
  std::vector<Row> rows;
  for (const auto& variant : run.names([](const ReportCell& cell) { return cell.variant; })) {
    Row row{variant, 0, json::array()};
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      const ReportCell* event = green_cell(run, variant, shapes[s], kEvents);
      const ReportCell* graph = green_cell(run, variant, shapes[s], Method::kGraphWarm);
      if (event == nullptr && graph == nullptr) continue;
      row.us += (event != nullptr ? event : graph)->times.p50;
      row.points.push_back(
          {{"shape", s}, {"event", time_or_null(event)}, {"graph", time_or_null(graph)}});
    }
    if (!row.points.empty()) rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.us < b.us; });
  json out = json::array();
  for (Row& row : rows) {
    if (out.size() >= kMostRows && !is_peer(row.variant)) continue;
    out.push_back({{"name", row.variant},
                   {"family", family_of(row.variant)},
                   {"points", std::move(row.points)}});
  }
  return out;
}

void plan_latency(const ReportData& data, const std::vector<RunNames>& names, PlotPlan& plan) {
  bool any = false;
  for (std::size_t i = 0; i < data.runs.size(); ++i) {
    const ReportRun& run = data.runs[i];
    std::vector<std::string> shapes;
    for (const auto& shape : run.names([](const ReportCell& cell) { return cell.shape.name; })) {
      const ReportCell* ours = fastest_of_ours(run, shape, name_of(kEvents));
      if (ours != nullptr && ours->times.p50 < kSmallUs) shapes.push_back(shape);
    }
    if (shapes.empty()) continue;
    any = true;
    add(plan,
        {"latency_" + names[i].slug + ".svg", "Latency of small shapes" + names[i].title,
         format("Shapes below %.0f microseconds, L2 warm. The way from the hollow mark to the full "
                "one is the launch. At most the %zu fastest kernels, and every peer.",
                kSmallUs, kMostRows),
         ""},
        "latency", {{"shapes", shapes}, {"rows", latency_rows(run, shapes)}});
  }
  if (!any) {
    plan.missing.push_back(format(
        "Figure of the latency of small shapes: no shape below %.0f microseconds.", kSmallUs));
  }
}

// --- ladder --------------------------------------------------------------------------------------

/// The ladder's rungs, each upon the one before; the P V of stage 3 replaces that of stage 2.
std::vector<std::string> rungs() {
  std::vector<std::string> names;
  Toggles toggles;
  names.push_back(stage_c_name(toggles));
  toggles.cp_async = true;
  names.push_back(stage_c_name(toggles));
  toggles.vec_pv = true;
  names.push_back(stage_c_name(toggles));
  toggles.vec_pv = false;
  toggles.wmma_pv = true;
  names.push_back(stage_c_name(toggles));
  toggles.warp_spec = true;
  names.push_back(stage_c_name(toggles));
  toggles.xor_swizzle = true;
  names.push_back(stage_c_name(toggles));
  return names;
}

/// The rungs that were measured on a shape, then the fastest of each other family.
json ladder_bars(const ReportRun& run, const std::string& shape) {
  json bars = json::array();
  const auto add_bar = [&](const ReportCell& cell) {
    bars.push_back(
        {{"name", cell.variant}, {"family", family_of(cell.variant)}, {"us", cell.times.p50}});
  };
  for (const std::string& rung : rungs()) {
    if (const ReportCell* cell = run.find(rung, shape, name_of(kEvents))) add_bar(*cell);
  }
  constexpr std::size_t kLeastRungs = 3;
  if (bars.size() < kLeastRungs || bars[0].at("name") != rungs().front()) return json::array();
  std::map<std::string, const ReportCell*> best;
  for (const ReportCell& cell : run.cells) {
    const std::string family = family_of(cell.variant);
    const bool other = family != family_of(rungs().front()) && !is_peer(cell.variant);
    if (!other || cell.shape.name != shape || cell.method != name_of(kEvents)) continue;
    const ReportCell*& kept = best[family];
    if (kept == nullptr || cell.times.p50 < kept->times.p50) kept = &cell;
  }
  for (const auto& [family, cell] : best) add_bar(*cell);
  return bars;
}

void plan_ladder(const ReportData& data, const std::vector<RunNames>& names, PlotPlan& plan) {
  constexpr const char* kShape = "mission";
  bool any = false;
  for (std::size_t i = 0; i < data.runs.size(); ++i) {
    json bars = ladder_bars(data.runs[i], kShape);
    if (bars.empty()) continue;
    any = true;
    add(plan,
        {"ladder_" + names[i].slug + ".svg",
         std::string("The ladder on ") + kShape + names[i].title,
         "Each rung adds to the one above it (tensor-core P V replaces the vectorised one); below "
         "them the fastest kernel of each other family. Median of single launches between events, "
         "L2 warm.",
         ""},
        "ladder", {{"bars", std::move(bars)}});
  }
  if (!any) {
    plan.missing.push_back(std::string("Figure of the ladder: it needs stage_c and two rungs, "
                                       "measured on ") +
                           kShape + " in one run.");
  }
}

// --- error against speed -------------------------------------------------------------------------

void plan_error_speed(const ReportData& data, const std::vector<RunNames>& names, PlotPlan& plan) {
  bool any = false;
  for (std::size_t i = 0; i < data.runs.size(); ++i) {
    const ReportRun& run = data.runs[i];
    const ReportCell* largest = nullptr;
    for (const ReportCell& cell : run.cells) {
      if (largest == nullptr || flop_count(cell.shape) > flop_count(largest->shape)) {
        largest = &cell;
      }
    }
    json points = json::array();
    for (const ReportCell& cell : run.cells) {
      const ReportVerdict* verdict = run.verdict(cell.variant, cell.shape.name);
      if (cell.shape.name != largest->shape.name || cell.method != name_of(kEvents) ||
          verdict == nullptr || !std::isfinite(verdict->kernel_rel_l2) ||
          !(verdict->kernel_rel_l2 > 0)) {
        continue;
      }
      points.push_back({{"name", cell.variant},
                        {"family", family_of(cell.variant)},
                        {"x", cell.tflops},
                        {"y", verdict->kernel_rel_l2}});
    }
    if (points.empty()) continue;
    any = true;
    add(plan,
        {"error_speed_" + names[i].slug + ".svg",
         "Error against speed on " + largest->shape.name + names[i].title,
         "The kernel's own relative L2 error, the largest over the heads and seeds, against the "
         "reference on the same FP8 inputs. Speed by single launches between events, L2 warm.",
         ""},
        "error_speed", {{"points", std::move(points)}});
  }
  if (!any) {
    plan.missing.emplace_back("Figure of error against speed: no times beside errors in a run.");
  }
}

// --- phases --------------------------------------------------------------------------------------

void plan_timelines(const ReportData& data, PlotPlan& plan) {
  int number = 0;
  for (const ReportTimeline& timeline : data.timelines) {
    json spans = json::array();
    for (const auto& span : timeline.spans) {
      spans.push_back({{"warp", span.warp},
                       {"phase", span.phase},
                       {"start", span.start},
                       {"cycles", span.cycles}});
    }
    add(plan,
        {"phases_" + std::to_string(++number) + ".svg",
         "Phases of " + as_code(timeline.variant) + " on " + as_code(timeline.shape),
         "The warps of one block in one launch on " + as_code(timeline.device) +
             ". Shares are of the block's warps together.",
         ""},
        "timeline", {{"spans", std::move(spans)}});
  }
  if (data.timelines.empty()) {
    plan.missing.emplace_back(
        "Figure of phases: no folder of `./sdpa timeline` among those given.");
  }
}

// --- scaling -------------------------------------------------------------------------------------

/// Lines of constant work over S, of what `value` says of a place.
template <class Value>
json levels_of(const ReportSweep& sweep, const std::string& variant, const Value& value) {
  std::map<std::int64_t, json> levels;
  for (const ReportSweep::Place& place : sweep.places) {
    if (place.variant == variant) levels[place.level].push_back(value(place));
  }
  json out = json::array();
  for (auto& [level, points] : levels) {
    out.push_back({{"level", level}, {"points", std::move(points)}});
  }
  return out;
}

void plan_scaling(const ReportData& data, PlotPlan& plan) {
  constexpr double kMebi = 1024.0 * 1024.0;
  int number = 0;
  for (const ReportSweep& sweep : data.sweeps) {
    for (const ReportSweep::Fit& fit : sweep.fits) {
      const std::string file = std::to_string(++number) + ".svg";
      add(plan,
          {"scaling_" + file, "Time over sequence length of " + as_code(fit.variant),
           "Launches in a CUDA graph. A line is constant work, B·H·S² = 2ⁿ; dashed is the model: "
           "launch + waves × key tiles × time of a tile.",
           ""},
          "scaling", {{"levels", levels_of(sweep, fit.variant, [](const ReportSweep::Place& place) {
                         return json{place.seq, place.graph_us,
                                     place.model_us ? json(*place.model_us) : json()};
                       })}});
      add(plan,
          {"memory_" + file, "Memory over sequence length of " + as_code(fit.variant),
           "What the device's free memory fell by for the tensors and the launch. A line is "
           "constant work, B·H·S² = 2ⁿ.",
           ""},
          "memory", {{"levels", levels_of(sweep, fit.variant, [](const ReportSweep::Place& place) {
                        return json{place.seq, place.device_bytes / kMebi};
                      })}});
    }
  }
  if (number == 0) {
    plan.missing.emplace_back("Figures of scaling and memory over S: no sweep.json with a fit.");
  }
}

}  // namespace

PlotPlan plan_plots(const ReportData& data) {
  PlotPlan plan;
  const std::vector<RunNames> names = names_of(data.runs);
  plan_tflops(data, names, plan);
  plan_latency(data, names, plan);
  plan_ladder(data, names, plan);
  plan_error_speed(data, names, plan);
  plan_timelines(data, plan);
  plan_scaling(data, plan);
  return plan;
}

}  // namespace fp8_sdpa::bench
