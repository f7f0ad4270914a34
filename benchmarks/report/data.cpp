#include "benchmarks/report/data.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "benchmarks/command/text.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/files/validate.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

constexpr const char* kNoDevice = "host executor";

/// Appends the series of a file of times. What the gates did not pass is left out, except of peers.
Status append_times(const std::string& path, const std::string& schemas, ReportRun& run,
                    std::vector<std::string>& left_out) {
  auto file = read_times(path, schemas);
  if (!file.ok()) return file.status();
  const std::string device = file->device.empty() ? kNoDevice : one_line(file->device);
  if (device != run.device) {
    return invalid_argument(one_line(path) + ": /device/name: got " + device + ", expected " +
                            run.device + " as in " + kCorrectnessFile);
  }
  std::vector<std::string> ungated;
  for (PerfSeries& series : file->series) {
    if (is_peer(series.variant) || run.is_green(series)) {
      run.series.push_back(std::move(series));
      continue;
    }
    const std::string line = series.variant + " on " + series.shape;
    if (std::find(ungated.begin(), ungated.end(), line) == ungated.end()) ungated.push_back(line);
  }
  if (!ungated.empty()) {
    left_out.push_back("Times of what did not pass its gates, in `" + one_line(path) +
                       "`: " + join(ungated) + ".");
  }
  return {};
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

void read_run(const std::string& folder, const std::string& schemas, ReportData& data) {
  const std::filesystem::path path(folder);
  ReportRun run;
  run.folder = folder;
  const auto refuse = [&](const Status& status, const char* consequence) {
    data.refused.push_back(status.message() + "; left out" + consequence);
  };
  const auto judged =
      read_result_file((path / kCorrectnessFile).string(), "correctness_summary", schemas);
  if (!judged.ok()) return refuse(judged.status(), ", and with it the folder's times");
  run.device = device_of(*judged);
  run.verdicts = verdicts_of(*judged);
  auto build = read_result_file((path / kBuildMetaFile).string(), "build_meta", schemas);
  if (build.ok()) {
    run.build_meta = std::move(*build);
  } else {
    refuse(build.status(), "");
  }
  const std::vector<std::string> files = files_of_times(path);
  for (const std::string& file : files) {
    if (Status s = append_times(file, schemas, run, data.left_out); !s.ok()) refuse(s, "");
  }
  if (files.empty()) {
    data.left_out.push_back("Times of " + one_line(folder) + ": none were taken.");
  }
  data.runs.push_back(std::move(run));
}

/// FlashAttention-3 beside ours, in turns in one process of its own driver.
Status read_beside(const std::string& folder, const std::string& schemas, ReportData& data) {
  const std::string path = (std::filesystem::path(folder) / kBesideFile).string();
  const auto document = read_json(path);
  if (!document.ok()) return document.status();
  const auto schema = read_json(schemas + "/beside_ours.schema.json");
  if (!schema.ok()) return schema.status();
  if (Status s = validate_document(*document, *schema, path); !s.ok()) return s;
  ReportRun run;
  run.folder = folder;
  run.gated = false;
  run.device = one_line(document->at("device").get<std::string>());
  for (const json& cell : document->at("cells")) {
    PerfSeries series;
    const bool causal = cell.at("mask") == "causal";
    series.shape = cell.at("cell").get<std::string>() + (causal ? "_causal" : "");
    reference::Shape& sizes = series.sizes;
    sizes.batch = cell.at("B");
    sizes.heads_q = sizes.heads_kv = cell.at("H");
    sizes.seq_q = sizes.seq_kv = cell.at("S");
    sizes.head_dim = cell.at("D");
    sizes.mask = causal ? Mask::kCausal : Mask::kNone;
    for (const std::string whose : {"ours", "fa3"}) {
      series.variant = whose == "ours" ? cell.at("variant").get<std::string>() : "peer/flash3_fp8";
      GateVerdict& verdict = run.verdicts[{series.variant, series.shape}];
      verdict.judged = 1;
      verdict.passed = cell.at("ok").get<bool>() ? 1 : 0;
      verdict.kernel_rel_l2 = cell.at(whose + "_rel_fp32");
      for (const Method method : {Method::kEventsWarm, Method::kGraphWarm}) {
        const std::string key =
            whose + (method == Method::kGraphWarm ? "_graph_samples_us" : "_samples_us");
        if (!cell.contains(key)) continue;
        const Summary times = summarise(cell.at(key).get<std::vector<double>>());
        series.method = name_of(method);
        series.times = {times.p50, times.p90, times.mean, times.std};
        // The file's rate is that of single launches.
        const double launch =
            summarise(cell.at(whose + "_samples_us").get<std::vector<double>>()).p50;
        series.tflops = cell.at(whose + "_tflops").get<double>() * launch / times.p50;
        run.series.push_back(series);
      }
    }
  }
  data.runs.push_back(std::move(run));
  return {};
}

}  // namespace

std::string device_of(const json& document) {
  const json name = document.value("/device/name"_json_pointer, json());
  return name.is_string() ? one_line(name.get<std::string>()) : kNoDevice;
}

std::string family_of(const std::string& variant) {
  if (is_peer(variant)) return "peer";
  constexpr std::string_view kLadder = "stage_c";
  if (variant.starts_with(kLadder)) return std::string(kLadder);
  return variant.substr(0, variant.find('_'));
}

const GateVerdict* ReportRun::verdict(const std::string& variant, const std::string& shape) const {
  const auto found = verdicts.find({variant, shape});
  return found == verdicts.end() ? nullptr : &found->second;
}

bool ReportRun::is_green(const PerfSeries& timed) const {
  const GateVerdict* judged = verdict(timed.variant, timed.shape);
  return judged != nullptr && judged->pass();
}

const PerfSeries* ReportRun::find(const std::string& variant, const std::string& shape,
                                  const std::string& method) const {
  const auto found = std::find_if(series.begin(), series.end(), [&](const PerfSeries& s) {
    return s.variant == variant && s.shape == shape && s.method == method;
  });
  return found == series.end() ? nullptr : &*found;
}

double ReportData::ceiling_tflops(const std::string& device) const {
  constexpr double kTera = 1e12;
  double most = 0;
  for (const json& chip : ceilings) {
    if (device_of(chip) != device) continue;
    for (const json& limit : chip.at("results")) {
      const bool fp8 = limit.at("name").get<std::string>().find("fp8") != std::string::npos &&
                       limit.at("unit") == "FLOP/s";
      if (fp8) most = std::max(most, limit.at("value").get<double>() / kTera);
    }
  }
  return most;
}

ReportData read_report_data(const std::vector<std::string>& folders, const std::string& kill_matrix,
                            const std::string& schemas) {
  ReportData data;
  const auto keep = [&](const std::filesystem::path& path, const char* schema,
                        std::vector<json>& list) {
    if (auto document = read_result_file(path.string(), schema, schemas); document.ok()) {
      list.push_back(std::move(*document));
    } else {
      data.refused.push_back(document.status().message() + "; left out");
    }
  };
  for (const std::string& folder : folders) {
    const std::filesystem::path path(folder);
    const bool run = is_there(path / kCorrectnessFile);
    const bool ceilings = is_there(path / kCeilingsFile);
    const bool sweep = is_there(path / kSweepFile);
    const bool serving = is_there(path / kServingFile);
    const bool unquantised = is_there(path / kUnquantisedFile);
    const bool profile = is_there(path / kProfileVerdictFile);
    const bool beside = is_there(path / kBesideFile);
    if (run) read_run(folder, schemas, data);
    if (ceilings) keep(path / kCeilingsFile, "ceilings", data.ceilings);
    if (sweep) keep(path / kSweepFile, "sweep", data.sweeps);
    if (serving) keep(path / kServingFile, "serving", data.servings);
    if (unquantised) keep(path / kUnquantisedFile, "unquantised", data.unquantised);
    if (profile) keep(path / kProfileVerdictFile, "verdict", data.profiles);
    if (beside) {
      const Status read = read_beside(folder, schemas, data);
      if (!read.ok()) data.refused.push_back(read.message() + "; left out");
    }
    if (!run && !ceilings && !sweep && !serving && !unquantised && !profile && !beside) {
      data.refused.push_back(one_line(folder) + ": none of " + kCorrectnessFile + ", " +
                             kCeilingsFile + ", " + kSweepFile + ", " + kServingFile + ", " +
                             kUnquantisedFile + ", " + kProfileVerdictFile + " and " + kBesideFile +
                             ", expected a result folder; left out");
    }
  }
  if (is_there(kill_matrix)) {
    std::vector<json> matrix;
    keep(kill_matrix, "kill_matrix", matrix);
    if (!matrix.empty()) data.kill_matrix = std::move(matrix.front());
  } else {
    data.left_out.push_back("Kill matrix: `" + one_line(kill_matrix) + "` is not there.");
  }
  return data;
}

}  // namespace fp8_sdpa::bench
