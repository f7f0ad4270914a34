#include "benchmarks/report/figures.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "benchmarks/command/text.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/report/page.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

/// What figures show is what was timed on one device, whichever of its runs it is of.
struct OnDevice {
  std::string device;
  std::string suffix;  ///< of file names: empty for the first device, else "_2", "_3", ...
  std::vector<const ReportRun*> runs;
};

std::vector<OnDevice> by_device(const ReportData& data) {
  std::vector<OnDevice> groups;
  for (const ReportRun& run : data.runs) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const OnDevice& g) { return g.device == run.device; });
    if (group == groups.end()) {
      const std::string suffix = groups.empty() ? "" : "_" + std::to_string(groups.size() + 1);
      group = groups.insert(group, {run.device, suffix, {}});
    }
    group->runs.push_back(&run);
  }
  return groups;
}

void add(PlotPlan& plan, Figure figure, const char* kind, json input) {
  input["kind"] = kind;
  input["file"] = figure.file;
  plan.plots.push_back({std::move(figure), std::move(input)});
}

/// A series, and the run whose gates judged it.
struct Shown {
  const ReportRun* run = nullptr;
  const PerfSeries* series = nullptr;

  bool green() const { return run->is_green(*series); }
  bool faster_than(const Shown& other) const { return series->times.p50 < other.series->times.p50; }
};
/// Ours of the fastest kernel, and each peer, by its name.
using Timed = std::map<std::string, Shown>;

constexpr const char* kOurs = "ours";

/// What is shown of each problem (B × H × S × D and mask). Where several runs timed one: our
/// slowest run, and each peer's fastest.
std::map<std::string, Timed> problems_of(const OnDevice& on, Method method) {
  std::map<std::string, Timed> problems;
  for (const ReportRun* run : on.runs) {
    std::map<std::string, Timed> of_run;
    for (const PerfSeries& series : run->series) {
      if (series.method != name_of(method)) continue;
      const std::string name = is_peer(series.variant) ? series.variant : kOurs;
      const Shown candidate{run, &series};
      Shown& fastest = of_run[size_text(series.sizes)][name];
      if (fastest.run == nullptr || candidate.faster_than(fastest)) fastest = candidate;
    }
    for (const auto& [problem, timed] : of_run) {
      for (const auto& [name, candidate] : timed) {
        Shown& shown = problems[problem][name];
        const bool kept = shown.run == nullptr || (name == kOurs ? shown.faster_than(candidate)
                                                                 : candidate.faster_than(shown));
        if (kept) shown = candidate;
      }
    }
  }
  return problems;
}

// --- TFLOP/s over S ------------------------------------------------------------------------------

/// What is shorter is shown by its latency.
constexpr std::int64_t kLeastLength = 128;

/// The lines of one head dim and mask; an empty array where none has two lengths. Of each length
/// one problem is shown, the one that most were timed on. A point is length, TFLOP/s, and whether
/// the gates passed it: those of a peer may have failed.
json lines_of(const OnDevice& on, int head_dim, Mask mask) {
  std::map<std::int64_t, Timed> lengths;
  for (auto& [problem, timed] : problems_of(on, kJudged)) {
    const reference::Shape& sizes = timed.begin()->second.series->sizes;
    if (sizes.head_dim != head_dim || sizes.mask != mask || sizes.seq_kv < kLeastLength) continue;
    Timed& shown = lengths[sizes.seq_kv];
    if (timed.size() > shown.size()) shown = timed;
  }
  std::map<std::string, json> lines;
  for (const auto& [length, timed] : lengths) {
    for (const auto& [name, shown] : timed) {
      lines[name].push_back({length, shown.series->tflops, shown.green()});
    }
  }
  json out = json::array();
  bool two_lengths = false;
  for (auto& [name, points] : lines) {
    two_lengths = two_lengths || points.size() > 1;
    out.push_back({{"name", name}, {"points", std::move(points)}});
  }
  return two_lengths ? out : json::array();
}

void plan_tflops(const ReportData& data, const OnDevice& on, PlotPlan& plan) {
  std::set<int> head_dims;
  for (const ReportRun* run : on.runs) {
    for (const PerfSeries& series : run->series) head_dims.insert(series.sizes.head_dim);
  }
  const double ceiling = data.ceiling_tflops(on.device);
  for (const int head_dim : head_dims) {
    json panels = json::array();
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      json lines = lines_of(on, head_dim, mask);
      if (lines.empty()) continue;
      panels.push_back({{"title", mask == Mask::kCausal ? "causal mask" : "no mask"},
                        {"series", std::move(lines)}});
    }
    if (panels.empty()) continue;
    const std::string dims = std::to_string(head_dim);
    add(plan,
        {"tflops_d" + dims + on.suffix + ".svg", "TFLOP/s over sequence length, D = " + dims,
         "On " + as_code(on.device) +
             ". Median of single launches between events, L2 warm. Ours is the fastest kernel that "
             "passed its gates; where several runs timed a problem, our slowest run and each "
             "peer's "
             "fastest. All points of a length are of one problem. Hollow: the peer's output failed "
             "its gates." +
             (ceiling > 0 ? "" : " No FP8 device limit was measured.")},
        "tflops",
        {{"panels", std::move(panels)}, {"ceiling", ceiling > 0 ? json(ceiling) : json()}});
  }
}

// --- latency of small shapes ---------------------------------------------------------------------

/// Shapes that a launch of ours does in less time than this are small, in microseconds.
constexpr double kSmallUs = 20;

void plan_latency(const OnDevice& on, PlotPlan& plan) {
  const auto graphs = problems_of(on, Method::kGraphWarm);
  std::vector<std::pair<double, json>> sorted;  // by FLOP
  for (const auto& [problem, timed] : problems_of(on, kJudged)) {
    const auto ours = timed.find(kOurs);
    if (ours == timed.end() || ours->second.series->times.p50 >= kSmallUs) continue;
    json points = json::array();
    for (const auto& [name, shown] : timed) {
      if (!shown.green()) continue;
      json graph;
      if (const auto found = graphs.find(problem); found != graphs.end()) {
        const auto same = found->second.find(name);
        if (same != found->second.end()) graph = same->second.series->times.p50;
      }
      points.push_back({{"name", name}, {"event", shown.series->times.p50}, {"graph", graph}});
    }
    sorted.emplace_back(
        flop_count(ours->second.series->sizes),
        json{{"name", ours->second.series->shape + ": " + problem}, {"points", points}});
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  json rows = json::array();
  for (auto& [flop, row] : sorted) rows.push_back(std::move(row));
  if (rows.empty()) return;
  add(plan,
      {"latency" + on.suffix + ".svg", "Latency of small shapes",
       "On " + as_code(on.device) +
           format(
               ". B × H × S × D, shapes of less than %.0f microseconds, L2 warm. Hollow: a single "
               "launch; full: a launch inside a CUDA graph. Ours is the fastest "
               "kernel; where several runs timed a shape, our slowest run and each peer's fastest. "
               "At the edge, in numbers: what takes longer than four times our slowest.",
               kSmallUs)},
      "latency", {{"rows", std::move(rows)}});
}

// --- error against speed -------------------------------------------------------------------------

void plan_error_speed(const OnDevice& on, PlotPlan& plan) {
  const PerfSeries* largest = nullptr;
  std::map<std::string, Shown> timed;  // as elsewhere: our slowest run, each peer's fastest
  for (const ReportRun* run : on.runs) {
    for (const PerfSeries& series : run->series) {
      if (series.method != name_of(kJudged)) continue;
      if (largest == nullptr || flop_count(series.sizes) > flop_count(largest->sizes)) {
        largest = &series;
        timed.clear();
      }
      if (series.shape != largest->shape) continue;
      const Shown candidate{run, &series};
      Shown& shown = timed[series.variant];
      const bool kept =
          shown.run == nullptr ||
          (is_peer(series.variant) ? candidate.faster_than(shown) : shown.faster_than(candidate));
      if (kept) shown = candidate;
    }
  }
  json points = json::array();
  for (const auto& [variant, shown] : timed) {
    const GateVerdict* verdict = shown.run->verdict(variant, largest->shape);
    if (verdict == nullptr || !std::isfinite(verdict->kernel_rel_l2) ||
        !(verdict->kernel_rel_l2 > 0)) {
      continue;
    }
    points.push_back(
        {{"name", variant}, {"x", shown.series->tflops}, {"y", verdict->kernel_rel_l2}});
  }
  if (points.empty()) return;
  add(plan,
      {"error_speed" + on.suffix + ".svg",
       "Error against speed on " + largest->shape + ", " + size_text(largest->sizes),
       "On " + as_code(on.device) +
           ". The kernel's own relative L2 error, the largest over the heads and seeds, against "
           "the "
           "reference on the same FP8 inputs. Speed by single launches between events, L2 warm; "
           "where several runs timed a kernel, our slowest run and each peer's fastest."},
      "error_speed", {{"points", std::move(points)}});
}

// --- from bf16 to bf16: error against speed of each way ------------------------------------------

/// The shape that is drawn.
constexpr const char* kQualityShape = "d128_4k";

struct QualityPoint {
  const char* name;
  const char* time;
  const char* error;
};
constexpr QualityPoint kQualityPoints[] = {
    {"a scale a head", "ours_heads_plain_us", "rmse_plain"},
    {"a head, rotated and smoothed", "ours_heads_us", "rmse_both"},
    {"blocks", "ours_plain_us", "rmse_blocks_plain"},
    {"blocks, rotated and smoothed", "ours_us", "rmse_blocks_both"},
    {"int8", "int8_us", "rmse_int8"},
    {"peer/cudnn_bf16", "cudnn_bf16_us", "rmse_cudnn_bf16"},
    {"peer/flash3_bf16", "flash3_bf16_us", "rmse_flash3_bf16"},
    {"peer/cudnn_fp8", "cudnn_fp8_us", "rmse_cudnn_fp8"},
    {"peer/flash3_fp8", "flash3_fp8_us", "rmse_flash3_fp8"}};

void plan_quality(const json& unquantised, const std::string& suffix, PlotPlan& plan) {
  constexpr double kTeraPerMicro = 1e-6;
  for (const json& row : unquantised.at("rows")) {
    if (row.at("shape") != kQualityShape) continue;
    const reference::Shape shape = reference::shape_of(
        kQualityShape, {row.at("batch"), row.at("heads"), row.at("heads"), row.at("seq"),
                        row.at("seq"), row.at("head_dim"), Mask::kNone});
    json points = json::array();
    for (const QualityPoint& point : kQualityPoints) {
      if (!row.contains(point.time) || !row.contains(point.error)) continue;
      const double us = row.at(point.time);
      points.push_back({{"name", point.name},
                        {"x", flop_count(shape) / us * kTeraPerMicro},
                        {"y", row.at(point.error)}});
    }
    add(plan,
        {"quality" + suffix + ".svg",
         std::string("Error against speed from bf16, ") + kQualityShape + ", " + size_text(shape),
         "On " + as_code(device_of(unquantised)) +
             ". FlashAttention-3's set with outliers. RMSE against fp64 attention of the bf16 "
             "tensors. Ours is the whole call, quantisation counted, by what has a scale and by "
             "options; the peers' FP8 is attention alone, on codes made before without options: a "
             "scale a tensor for cuDNN, a head for FlashAttention-3."},
        "error_speed",
        {{"points", std::move(points)}, {"modes", true}, {"error", "RMSE (better below)"}});
  }
}

// --- the rate of decode steps over keys ----------------------------------------------------------

/// A line for each batch of one query a sequence, all as long, of 2^n keys, D = 128, in pages; none
/// where no batch has two lengths.
void plan_bandwidth(const json& serving, const std::string& suffix, PlotPlan& plan) {
  constexpr double kGiga = 1e9;
  std::map<int, std::map<std::int64_t, double>> batches;
  for (const json& row : serving.at("results")) {
    const bool shown = row.at("queries") == 1 && row.at("head_dim") == 128 &&
                       row.at("page_size") == 64 && row.at("heads_q") == 64 &&
                       row.at("heads_kv") == 8 && !row.at("ragged").get<bool>() &&
                       std::has_single_bit(row.at("keys").get<std::uint64_t>());
    if (shown)
      batches[row.at("batch")][row.at("keys")] = row.at("bytes_per_s").get<double>() / kGiga;
  }
  json lines = json::array();
  bool two_lengths = false;
  for (const auto& [batch, rates] : batches) {
    json points = json::array();
    for (const auto& [keys, rate] : rates) points.push_back({keys, rate});
    two_lengths = two_lengths || points.size() > 1;
    lines.push_back({{"batch", batch}, {"points", std::move(points)}});
  }
  if (!two_lengths) return;
  add(plan,
      {"bandwidth" + suffix + ".svg", "Rate of decode steps over keys, D = 128",
       "On " + as_code(device_of(serving)) +
           ". One query a sequence, 64 query and 8 KV heads, FP8 keys and values in pages of 64: "
           "their bytes over the median time of a launch inside a CUDA graph. What fits the L2 "
           "cache is read from there in part. Dotted: what a kernel that only reads reaches, "
           "measured in the same run."},
      "bandwidth",
      {{"series", std::move(lines)},
       {"limit", serving.at("read_bytes_per_s").get<double>() / kGiga}});
}

}  // namespace

PlotPlan plan_plots(const ReportData& data) {
  PlotPlan plan;
  const std::vector<OnDevice> groups = by_device(data);
  for (const OnDevice& on : groups) plan_tflops(data, on, plan);
  const auto missing = [&](std::size_t before, const std::string& line) {
    if (plan.plots.size() == before) plan.missing.push_back(line);
  };
  missing(0, "Figure of TFLOP/s over sequence length: it needs two lengths of one head dim.");
  const std::size_t of_tflops = plan.plots.size();
  for (const OnDevice& on : groups) plan_latency(on, plan);
  missing(of_tflops,
          format("Figure of the latency of small shapes: none below %.0f microseconds.", kSmallUs));
  const std::size_t of_latency = plan.plots.size();
  for (const OnDevice& on : groups) plan_error_speed(on, plan);
  missing(of_latency, "Figure of error against speed: no times beside errors.");
  const std::size_t of_errors = plan.plots.size();
  for (std::size_t i = 0; i < data.unquantised.size(); ++i) {
    plan_quality(data.unquantised[i], i == 0 ? "" : "_" + std::to_string(i + 1), plan);
  }
  missing(of_errors, "Figure of error against speed from bf16: peers --unquantised did not run.");
  const std::size_t of_quality = plan.plots.size();
  for (std::size_t i = 0; i < data.servings.size(); ++i) {
    plan_bandwidth(data.servings[i], i == 0 ? "" : "_" + std::to_string(i + 1), plan);
  }
  missing(of_quality, "Figure of the rate of decode steps: it needs two lengths of one batch.");
  return plan;
}

}  // namespace fp8_sdpa::bench
