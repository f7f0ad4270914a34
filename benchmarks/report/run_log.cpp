#include "benchmarks/report/run_log.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/command/text.hpp"
#include "benchmarks/compare/compare.hpp"
#include "benchmarks/compare/elite.hpp"
#include "benchmarks/files/perf_file.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/files/verdicts.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

constexpr Method kJudged = Method::kEventsWarm;

/// A run of the runner.
struct Run {
  std::string folder;
  json build;
  json correctness;
  std::optional<PerfFile> perf;
};

/// Everything that the log is written from.
struct Material {
  std::vector<Run> runs;
  std::vector<std::pair<std::string, json>> profiles;  ///< folder, verdict.json
  Elite elite;
};

Result<Run> read_run(const std::string& folder, const std::string& schemas) {
  const std::filesystem::path path(folder);
  Run run;
  run.folder = folder;
  auto build = read_result_file((path / kBuildMetaFile).string(), "build_meta", schemas);
  if (!build.ok()) return build.status();
  run.build = std::move(*build);
  auto judged =
      read_result_file((path / kCorrectnessFile).string(), "correctness_summary", schemas);
  if (!judged.ok()) return judged.status();
  run.correctness = std::move(*judged);
  if (is_there(path / kPerfFile)) {
    auto perf = read_perf_file(folder, schemas);
    if (!perf.ok()) return perf.status();
    run.perf = std::move(*perf);
  }
  return run;
}

Result<Material> read_all(const RunLogRequest& request) {
  Material material;
  for (const std::string& folder : request.folders) {
    const std::filesystem::path path(folder);
    if (is_there(path / kProfileVerdictFile)) {
      auto verdict =
          read_result_file((path / kProfileVerdictFile).string(), "verdict", request.schema_folder);
      if (!verdict.ok()) return verdict.status();
      material.profiles.emplace_back(folder, std::move(*verdict));
    } else if (is_there(path / kCorrectnessFile)) {
      auto run = read_run(folder, request.schema_folder);
      if (!run.ok()) return run.status();
      material.runs.push_back(std::move(*run));
    } else {
      return invalid_argument(one_line(folder) + ": neither " + kCorrectnessFile + " nor " +
                              kProfileVerdictFile +
                              ", expected a folder that fp8_sdpa_run or fp8_sdpa_profile wrote");
    }
  }
  auto elite = read_elite(request.elite, request.schema_folder);
  if (!elite.ok()) return elite.status();
  material.elite = std::move(*elite);
  return material;
}

std::string text_or(const json& value, const char* otherwise) {
  if (value.is_string()) return one_line(value.get<std::string>());
  return value.is_null() ? otherwise : value.dump();
}

std::string environment(const Run& run) {
  const json& device = run.build.at("device");
  const json& build = run.build.at("build");
  const json& git = run.build.at("git");
  std::string out = "- folder `" + one_line(run.folder) + "`, " +
                    run.build.at("timestamp").get<std::string>() + ", backend " +
                    run.build.at("backend").get<std::string>() + "\n";
  if (device.is_object()) {
    const json& clocks = device.at("clocks");
    out += "- " + text_or(device.at("name"), "?") + ", CUDA " +
           text_or(device.at("cuda_version"), "?") + ", driver " +
           text_or(device.at("driver_version"), "unknown") + ", SM clock " +
           text_or(clocks.at("sm_mhz"), "unknown") + " of " +
           text_or(clocks.at("sm_max_mhz"), "unknown") + " MHz, power limit " +
           text_or(device.at("power_limit_watts"), "unknown") + " W\n";
  }
  return out + "- commit " + text_or(git.at("sha"), "?") + " on " + text_or(git.at("branch"), "?") +
         (git.at("dirty").get<bool>() ? " (dirty)" : "") + ", " +
         text_or(build.at("build_type"), "?") + ", " + text_or(build.at("compiler"), "?") + ", " +
         text_or(build.at("cuda_compiler"), "?") + ", architectures " +
         text_or(build.at("arch"), "?") + "\n";
}

/// A row for each (variant, shape): the worst errors of its seeds.
std::string correctness(const Run& run) {
  std::string rows;
  std::string failures;
  int passed = 0;
  for (const auto& [key, verdict] : verdicts_of(run.correctness)) {
    passed += verdict.passed;
    rows += "| " + key.first + " | " + key.second +
            format(" | %.4f | %.4f | %d of %d |\n", verdict.max_abs_err, verdict.rel_l2,
                   verdict.passed, verdict.judged);
    for (const auto& [seed, what] : verdict.failures) {
      failures += "- " + key.first + " on " + key.second + ", seed " + seed + ": " + what + "\n";
    }
  }
  return std::to_string(passed) + " of " + std::to_string(run.correctness.at("results").size()) +
         " cases passed.\n\n| variant | shape | max abs err | rel L2 | seeds passed |\n"
         "|---|---|---|---|---|\n" +
         rows + (failures.empty() ? "" : "\n" + failures);
}

std::string baseline_table(const Run& run, const std::string& baseline) {
  std::string out;
  for (const PerfSeries& s : run.perf->series) {
    if (s.variant != baseline) continue;
    out += "| " + s.shape + " | " + s.method +
           format(" | %.2f | %.2f | %.2f | %.2f |\n", s.times.p50, s.times.p90, s.times.mean,
                  s.times.std);
  }
  if (out.empty()) return "The baseline " + baseline + " was not timed.\n";
  return baseline +
         ", microseconds per launch:\n\n| shape | method | p50 | p90 | mean | std |\n"
         "|---|---|---|---|---|---|\n" +
         out;
}

/// Each variant's p50 on each shape, and its speed-up over the baseline.
std::string variants_tried(const Run& run, const std::string& baseline) {
  const std::string method = name_of(kJudged);
  std::vector<std::string> shapes;
  for (const PerfSeries& s : run.perf->series) {
    const bool known = std::find(shapes.begin(), shapes.end(), s.shape) != shapes.end();
    if (s.method == method && !known) shapes.push_back(s.shape);
  }
  std::string out = "p50 in microseconds by " + method +
                    ", and the geometric mean of speed-ups over " + baseline + ":\n\n| variant | " +
                    join(shapes, " | ") + " | speed-up |\n|---|";
  for (std::size_t i = 0; i <= shapes.size(); ++i) out += "---|";
  out += "\n";
  for (const std::string& variant : run.perf->variants()) {
    out += "| " + variant + " |";
    std::vector<double> speedups;
    for (const std::string& shape : shapes) {
      const PerfSeries* ours = run.perf->find(variant, shape, method);
      const PerfSeries* base = run.perf->find(baseline, shape, method);
      out += ours == nullptr ? " - |" : format(" %.2f |", ours->times.p50);
      if (ours != nullptr && base != nullptr) {
        speedups.push_back(base->times.p50 / ours->times.p50);
      }
    }
    // A mean over fewer shapes would not compare with the others'.
    const bool whole = speedups.size() == shapes.size() && !shapes.empty();
    out += whole ? format(" %.3fx |\n", geometric_mean(speedups)) : " - |\n";
  }
  return out;
}

std::string elite_section(const Elite& elite) {
  if (elite.entries.empty()) return "None yet: fp8_sdpa_elite keeps it.\n";
  std::string out =
      "Over " + elite.baseline + " by " + elite.method + " on " + one_line(elite.device) + ":\n\n";
  int rank = 0;
  for (const EliteEntry& entry : elite.entries) {
    out += format("%d. %s %.3fx", ++rank, entry.variant.c_str(), entry.speedup) + " (" +
           one_line(entry.timestamp) + ", commit " + one_line(entry.commit) + ")\n";
  }
  return out;
}

/// The variant with the least p50 on the run's first shape that was timed.
std::string fastest(const Run& run, std::string& shape) {
  const PerfSeries* best = nullptr;
  for (const PerfSeries& s : run.perf->series) {
    if (s.method != name_of(kJudged)) continue;
    if (best != nullptr && (s.shape != best->shape || !(s.times.p50 < best->times.p50))) continue;
    best = &s;
  }
  if (best == nullptr) return "";
  shape = best->shape;
  return best->variant;
}

std::string next_steps(const Material& material) {
  std::string out;
  for (const Run& run : material.runs) {
    if (!run.correctness.at("all_pass").get<bool>()) {
      out += "- GREEN before FAST: mend what failed in `" + one_line(run.folder) + "`.\n";
    } else if (!run.perf) {
      out += "- `" + one_line(run.folder) + "` has no times: run it where a GPU is.\n";
    }
  }
  for (const auto& [folder, verdict] : material.profiles) {
    out += "- " + verdict.at("variant").get<std::string>() + " on " +
           verdict.at("shape").get<std::string>() + " is " +
           verdict.at("verdict").get<std::string>() + ": " + text_or(verdict.at("next_step"), "") +
           ".\n";
  }
  if (!material.profiles.empty()) return out;
  for (const Run& run : material.runs) {
    std::string shape;
    const std::string variant = run.perf ? fastest(run, shape) : "";
    if (variant.empty()) continue;
    out += "- No profile yet: `./sdpa profile " + shape + " " +
           run.correctness.at("/results/0/seed"_json_pointer).dump() + " 3 --variant " + variant +
           "`.\n";
  }
  return out.empty() ? "- None.\n" : out;
}

std::string profile_section(const Material& material) {
  if (material.profiles.empty()) return "None among the folders given.\n";
  std::string out;
  for (const auto& [folder, verdict] : material.profiles) {
    out += "- `" + one_line(folder) + "`: " + verdict.at("variant").get<std::string>() + " on " +
           verdict.at("shape").get<std::string>() + ": **" +
           verdict.at("verdict").get<std::string>() + "** (" + text_or(verdict.at("because"), "") +
           ")\n";
  }
  return out;
}

}  // namespace

Result<std::string> run_log(const RunLogRequest& request, std::time_t when) {
  const auto material = read_all(request);
  if (!material.ok()) return material.status();
  std::string out = "# Run log, " + iso_timestamp(when) + "\n";
  // One section of all runs, each run's part under the last one's.
  const auto section = [&](const char* title, const auto& part) {
    out += "\n## " + std::string(title) + "\n";
    if (material->runs.empty()) out += "\nNo run among the folders given.\n";
    for (const Run& run : material->runs) out += "\n" + part(run);
  };
  const auto timed = [&](const auto& part) {
    return [&part, &request](const Run& run) {
      return run.perf ? part(run, request.baseline)
                      : "`" + one_line(run.folder) + "`: no times were taken.\n";
    };
  };
  section("Environment", environment);
  section("Correctness", correctness);
  section("Baseline", timed(baseline_table));
  out += "\n## Profile\n\n" + profile_section(*material);
  section("Variants tried", timed(variants_tried));
  out += "\n## Elite\n\n" + elite_section(material->elite);
  out += "\n## Next steps\n\n" + next_steps(*material);
  return out;
}

Result<std::string> write_run_log(const std::string& root, const std::string& text,
                                  std::time_t when) {
  // YYYYMMDD-HHMMSS without the seconds.
  constexpr std::size_t kToMinutes = 13;
  std::string minute = folder_name(when).substr(0, kToMinutes);
  std::replace(minute.begin(), minute.end(), '-', '_');
  const std::string stem = root + "/run_" + minute;
  std::string path = stem + ".md";
  for (int number = 2; is_there(path); ++number) {
    path = stem + "_" + std::to_string(number) + ".md";
  }
  if (Status s = replace_file(path, text); !s.ok()) return s;
  return path;
}

}  // namespace fp8_sdpa::bench
