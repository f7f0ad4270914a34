#include "benchmarks/report/data.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string_view>

#include "benchmarks/files/fields.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/command/text.hpp"
#include "benchmarks/files/validate.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

constexpr const char* kTraceFile = "trace.json";
constexpr const char* kCeilingsName = "ceilings.json";
constexpr const char* kSweepName = "sweep.json";
/// Of perf_baseline.json: 2 adds repetitions with their clocks and the interval of the median.
constexpr int kNewestPerfVersion = 2;
constexpr std::string_view kPeerPrefix = "peer/";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The name of the device of a result file.
std::string device_of(const json& document) {
  const json name = document.value("/device/name"_json_pointer, json());
  return name.is_string() ? one_line(name.get<std::string>()) : "host executor";
}

Status read_verdicts(const std::string& path, ReportRun& run) {
  const auto document = read_versioned(path, kResultSchemaVersion);
  if (!document.ok()) return document.status();
  Fields fields(path);
  fields.look_at(*document, "");
  run.timestamp = fields.text("timestamp");
  run.device = device_of(*document);
  const json& results = fields.array("results");
  for (std::size_t i = 0; i < results.size() && fields.status().ok(); ++i) {
    fields.look_at(results[i], "/results/" + std::to_string(i));
    ReportVerdict& verdict = run.verdicts[{fields.text("variant"), fields.text("shape")}];
    ++verdict.judged;
    if (fields.flag("pass")) {
      ++verdict.passed;
    } else if (verdict.failure.empty()) {
      verdict.failure = fields.text("failure", "no reason given");
    }
    const auto keep_largest = [&](double& largest, const char* key) {
      largest = std::max(largest, fields.error(key));
    };
    keep_largest(verdict.max_abs_err, "max_abs_err");
    keep_largest(verdict.mean_abs_err, "mean_abs_err");
    keep_largest(verdict.rel_l2, "rel_l2");
    keep_largest(verdict.kernel_rel_l2, "kernel_rel_l2");
  }
  return fields.status();
}

ReportCell read_cell(Fields& fields) {
  ReportCell cell;
  cell.variant = fields.text("variant");
  cell.method = fields.text("method");
  cell.shape.name = fields.text("shape");
  cell.shape.batch = static_cast<int>(fields.size("B"));
  cell.shape.heads_q = static_cast<int>(fields.size("H"));
  cell.shape.heads_kv = static_cast<int>(fields.size("H_kv", cell.shape.heads_q));
  cell.shape.seq_q = fields.size("S");
  cell.shape.seq_kv = fields.size("S_kv", cell.shape.seq_q);
  cell.shape.head_dim = static_cast<int>(fields.size("D"));
  cell.shape.mask = fields.text("mask", name_of(Mask::kNone)) == name_of(Mask::kCausal)
                        ? Mask::kCausal
                        : Mask::kNone;
  cell.times = {fields.number("p50_us"), fields.number("p90_us"), fields.number("mean_us"),
                fields.number("std_us", /*may_be_zero=*/true)};
  cell.tflops = fields.number("tflops");
  cell.interval = fields.interval("p50_interval_us");
  cell.marked_samples = fields.count("marked_samples", 0);
  return cell;
}

/// Appends the cells of a file of times. What the gates did not pass is left out, except of peers.
Status read_times(const std::string& path, ReportRun& run, std::vector<std::string>& left_out) {
  const auto document = read_versioned(path, kNewestPerfVersion);
  if (!document.ok()) return document.status();
  if (device_of(*document) != run.device) {
    return invalid_argument(one_line(path) + ": /device/name: got " + device_of(*document) +
                            ", expected " + run.device + " as in " + kCorrectnessFile);
  }
  Fields fields(path);
  fields.look_at(*document, "");
  std::vector<ReportCell> cells;
  std::vector<std::string> ungated;
  const json& results = fields.array("results");
  for (std::size_t i = 0; i < results.size() && fields.status().ok(); ++i) {
    fields.look_at(results[i], "/results/" + std::to_string(i));
    ReportCell cell = read_cell(fields);
    const ReportVerdict* verdict = run.verdict(cell.variant, cell.shape.name);
    if (is_peer(cell.variant) || (verdict != nullptr && verdict->pass())) {
      cells.push_back(std::move(cell));
    } else {
      const std::string line = cell.variant + " on " + cell.shape.name;
      if (std::find(ungated.begin(), ungated.end(), line) == ungated.end()) ungated.push_back(line);
    }
  }
  if (!fields.status().ok()) return fields.status();
  run.cells.insert(run.cells.end(), cells.begin(), cells.end());
  if (!ungated.empty()) {
    left_out.push_back("Times of what did not pass its gates, in `" + one_line(path) +
                       "`: " + join(ungated) + ".");
  }
  return {};
}

Result<ReportTimeline> read_timeline(const std::string& path) {
  const auto document = read_json(path);
  if (!document.ok()) return document.status();
  Fields fields(path);
  fields.look_at(*document, "");
  const json& events = fields.array("traceEvents");
  ReportTimeline timeline;
  const json about = fields.member("otherData");
  fields.look_at(about, "/otherData");
  timeline.variant = fields.text("variant");
  timeline.shape = fields.text("shape");
  timeline.device = fields.text("device", "host executor");
  constexpr double kCyclesPerMicrosecond = 1000;  // chrome_trace(): the viewer's ns is a cycle
  for (std::size_t i = 0; i < events.size() && fields.status().ok(); ++i) {
    const std::string place = "/traceEvents/" + std::to_string(i);
    fields.look_at(events[i], place);
    ReportTimeline::Span span{0, fields.text("name"),
                              fields.number("ts", /*may_be_zero=*/true) * kCyclesPerMicrosecond,
                              fields.number("dur", /*may_be_zero=*/true) * kCyclesPerMicrosecond};
    const json arguments = fields.member("args");
    fields.look_at(arguments, place + "/args");
    const auto block = static_cast<int>(fields.number("block", /*may_be_zero=*/true));
    span.warp = static_cast<int>(fields.number("warp", /*may_be_zero=*/true));
    if (block == 0) timeline.spans.push_back(std::move(span));
  }
  if (fields.status().ok() && timeline.spans.empty()) {
    return invalid_argument(one_line(path) + ": /traceEvents: no span of block 0, expected some");
  }
  if (!fields.status().ok()) return fields.status();
  double first = timeline.spans.front().start;
  for (const auto& span : timeline.spans) first = std::min(first, span.start);
  for (auto& span : timeline.spans) span.start -= first;
  return timeline;
}

Result<ReportCeilings> read_ceilings(const std::string& path) {
  const auto document = read_versioned(path, kResultSchemaVersion);
  if (!document.ok()) return document.status();
  ReportCeilings ceilings;
  ceilings.device = device_of(*document);
  Fields fields(path);
  fields.look_at(*document, "");
  const json& results = fields.array("results");
  for (std::size_t i = 0; i < results.size() && fields.status().ok(); ++i) {
    fields.look_at(results[i], "/results/" + std::to_string(i));
    ceilings.limits.push_back({fields.text("name"), fields.text("what", ""), fields.text("unit"),
                               fields.number("value")});
  }
  if (!fields.status().ok()) return fields.status();
  return ceilings;
}

Result<ReportSweep> read_sweep(const std::string& path) {
  const auto document = read_versioned(path, kResultSchemaVersion);
  if (!document.ok()) return document.status();
  ReportSweep sweep;
  sweep.device = device_of(*document);
  Fields fields(path);
  fields.look_at(*document, "");
  const json& results = fields.array("results");
  const json& fits = fields.array("fits");
  for (std::size_t i = 0; i < results.size() && fields.status().ok(); ++i) {
    fields.look_at(results[i], "/results/" + std::to_string(i));
    ReportSweep::Place place{fields.text("variant"),
                             fields.text("shape"),
                             fields.count("level"),
                             fields.size("S"),
                             fields.number("graph_us"),
                             fields.number("device_bytes", /*may_be_zero=*/true),
                             {}};
    if (!fields.member("model_us").is_null()) place.model_us = fields.number("model_us");
    sweep.places.push_back(std::move(place));
  }
  for (std::size_t i = 0; i < fits.size() && fields.status().ok(); ++i) {
    fields.look_at(fits[i], "/fits/" + std::to_string(i));
    sweep.fits.push_back(
        {fields.text("variant"), fields.finite("launch_us"), fields.finite("per_step_us"),
         fields.number("rms_departure", /*may_be_zero=*/true), fields.size("places")});
  }
  if (!fields.status().ok()) return fields.status();
  return sweep;
}

Result<json> read_profile(const std::string& path) {
  Result<json> document = read_versioned(path, kResultSchemaVersion);
  if (!document.ok()) return document;
  Fields fields(path);
  fields.look_at(*document, "");
  for (const char* key : {"variant", "shape", "verdict", "because", "next_step"}) {
    fields.text(key, "");
  }
  if (!fields.status().ok()) return fields.status();
  return document;
}

Result<json> read_kill_matrix(const std::string& path) {
  constexpr int kVersion = 1;
  Result<json> document = read_versioned(path, kVersion);
  if (!document.ok()) return document;
  Fields fields(path);
  fields.look_at(*document, "");
  const json& faults = fields.array("faults");
  for (std::size_t i = 0; i < faults.size() && fields.status().ok(); ++i) {
    const std::string place = "/faults/" + std::to_string(i);
    fields.look_at(faults[i], place);
    for (const char* key : {"name", "what", "kind", "place", "strongest_gate", "strongest_trial"}) {
      fields.text(key, "");
    }
    fields.flag("killed");
    const json peers =
        faults[i].is_object() ? faults[i].value("peers_pass", json::object()) : json();
    fields.look_at(peers, place + "/peers_pass");
    if (!peers.is_object()) break;
    for (const auto& peer : peers.items()) fields.flag(peer.key().c_str());
  }
  if (!fields.status().ok()) return fields.status();
  return document;
}

Result<json> read_build_meta(const std::string& path) {
  Result<json> document = read_versioned(path, kResultSchemaVersion);
  if (!document.ok()) return document;
  Fields fields(path);
  fields.look_at(*document, "");
  fields.text("timestamp");
  const json git = fields.member("git");
  const json build = fields.member("build");
  fields.look_at(git, "/git");
  fields.text("sha");
  fields.flag("dirty");
  fields.look_at(build, "/build");
  const json& kernels = fields.array("ptxas");
  for (std::size_t i = 0; i < kernels.size() && fields.status().ok(); ++i) {
    fields.look_at(kernels[i], "/build/ptxas/" + std::to_string(i));
    for (const char* key : {"kernel", "variant", "arch"}) fields.text(key);
    for (const char* key : {"registers", "smem_bytes", "spill_stores", "spill_loads"}) {
      fields.number(key, /*may_be_zero=*/true);
    }
  }
  if (!fields.status().ok()) return fields.status();
  return document;
}

/// Files of times in a run's folder: the runner's, and those of peers that ran beside it.
std::vector<std::string> files_of_times(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool of_times = name.starts_with("perf_") || name.starts_with("peers_");
    if (of_times && name.ends_with(".json")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void read_run(const std::string& folder, ReportData& data) {
  const std::filesystem::path path(folder);
  ReportRun run;
  run.folder = folder;
  const auto refuse = [&](const Status& status, const char* consequence) {
    data.refused.push_back(status.message() + "; left out" + consequence);
  };
  if (Status s = read_verdicts((path / kCorrectnessFile).string(), run); !s.ok()) {
    return refuse(s, ", and with it the folder's times");
  }
  if (auto build = read_build_meta((path / kBuildMetaFile).string()); build.ok()) {
    run.build_meta = std::move(*build);
  } else {
    refuse(build.status(), "");
  }
  const std::vector<std::string> files = files_of_times(path);
  for (const std::string& file : files) {
    if (Status s = read_times(file, run, data.left_out); !s.ok()) refuse(s, "");
  }
  if (files.empty()) {
    data.left_out.push_back("Times of " + one_line(folder) + ": none were taken.");
  }
  data.runs.push_back(std::move(run));
}

}  // namespace

bool is_peer(const std::string& variant) {
  return variant.starts_with(kPeerPrefix);
}

std::string family_of(const std::string& variant) {
  if (is_peer(variant)) return "peer";
  constexpr std::string_view kLadder = "stage_c";
  if (variant.starts_with(kLadder)) return std::string(kLadder);
  return variant.substr(0, variant.find('_'));
}

const ReportVerdict* ReportRun::verdict(const std::string& variant,
                                        const std::string& shape) const {
  const auto found = verdicts.find({variant, shape});
  return found == verdicts.end() ? nullptr : &found->second;
}

bool ReportRun::is_green(const ReportCell& cell) const {
  const ReportVerdict* of_cell = verdict(cell.variant, cell.shape.name);
  return of_cell != nullptr && of_cell->pass();
}

const ReportCell* ReportRun::find(const std::string& variant, const std::string& shape,
                                  const std::string& method) const {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const ReportCell& cell) {
    return cell.variant == variant && cell.shape.name == shape && cell.method == method;
  });
  return found == cells.end() ? nullptr : &*found;
}

double ReportData::ceiling_tflops(const std::string& device) const {
  constexpr double kTera = 1e12;
  double most = 0;
  for (const ReportCeilings& chip : ceilings) {
    for (const ReportCeilings::Limit& limit : chip.limits) {
      const bool fp8 = limit.name.find("fp8") != std::string::npos && limit.unit == "FLOP/s";
      if (chip.device == device && fp8) most = std::max(most, limit.value / kTera);
    }
  }
  return most;
}

ReportData read_report_data(const std::vector<std::string>& folders,
                            const std::string& kill_matrix) {
  ReportData data;
  const auto keep = [&](auto&& item, auto& list) {
    if (item.ok()) {
      list.push_back(std::move(*item));
    } else {
      data.refused.push_back(item.status().message() + "; left out");
    }
  };
  for (const std::string& folder : folders) {
    const std::filesystem::path path(folder);
    bool known = false;
    const auto holds = [&](const char* file) {
      const bool there = is_there(path / file);
      known = known || there;
      return there;
    };
    if (holds(kCorrectnessFile)) read_run(folder, data);
    if (holds(kCeilingsName)) keep(read_ceilings((path / kCeilingsName).string()), data.ceilings);
    if (holds(kSweepName)) keep(read_sweep((path / kSweepName).string()), data.sweeps);
    if (holds(kProfileVerdictFile)) {
      keep(read_profile((path / kProfileVerdictFile).string()), data.profiles);
    }
    if (holds(kTraceFile)) keep(read_timeline((path / kTraceFile).string()), data.timelines);
    if (!known) {
      data.refused.push_back(one_line(folder) + ": none of " + kCorrectnessFile + ", " +
                             kCeilingsName + ", " + kSweepName + ", " + kProfileVerdictFile +
                             " and " + kTraceFile + ", expected a result folder; left out");
    }
  }
  if (!is_there(kill_matrix)) {
    data.left_out.push_back("Kill matrix: `" + one_line(kill_matrix) + "` is not there.");
  } else if (auto matrix = read_kill_matrix(kill_matrix); matrix.ok()) {
    data.kill_matrix = std::move(*matrix);
  } else {
    data.refused.push_back(matrix.status().message() + "; left out");
  }
  return data;
}

}  // namespace fp8_sdpa::bench
