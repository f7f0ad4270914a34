#include "benchmarks/files/perf_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/command/text.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/files/verdicts.hpp"
#include "reference/formats/json_reader.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

Status refused(const std::string& path, const std::string& finding) {
  return invalid_argument(one_line(path) + ": " + finding);
}

std::string commit_text(const std::string& sha, bool dirty) {
  constexpr std::size_t kShortSha = 12;
  return sha.substr(0, kShortSha) + (dirty ? " (dirty)" : "");
}

void append_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

/// An SM clock, where there is one.
std::optional<double> clock_of(const json& object) {
  const json clock = object.value("sm_clock_mhz", json());
  if (!clock.is_number() || !(clock.get<double>() > 0)) return std::nullopt;
  return clock.get<double>();
}

// --- perf_baseline.json --------------------------------------------------------------------------

Status add_gate_verdicts(const json& perf, const std::string& schema_folder, PerfFile& file) {
  const std::string path =
      (std::filesystem::path(file.path).parent_path() / kCorrectnessFile).string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return refused(path,
                   "not there, expected the gates' verdict on the run of " + one_line(file.path));
  }
  const auto summary = read_result_file(path, "correctness_summary", schema_folder);
  if (!summary.ok()) return summary.status();
  for (const char* key : {"timestamp", "backend", "device"}) {
    if (summary->at(key) != perf.at(key)) {
      return refused(path, "/" + std::string(key) + ": got " + summary->at(key).dump() +
                               ", expected " + perf.at(key).dump() + " as in " +
                               one_line(file.path));
    }
  }
  const GateVerdicts verdicts = verdicts_of(*summary);
  for (PerfSeries& series : file.series) {
    const auto verdict = verdicts.find({series.variant, series.shape});
    if (verdict == verdicts.end()) {
      return refused(path, "no verdict on " + series.variant + " on " + series.shape +
                               ", expected one for each series of " + one_line(file.path));
    }
    series.gate_failure = verdict->second.failure();
  }
  return {};
}

SeriesTimes times_of(const Summary& summary) {
  return {summary.p50, summary.p90, summary.mean, summary.std};
}

/// Reads a result's repetitions; false where they are not its samples, each once and in order.
bool read_repetitions(const json& result, PerfSeries& series) {
  const auto samples = result.at("samples_us").get<std::vector<double>>();
  series.samples = static_cast<std::int64_t>(samples.size());
  std::int64_t next = 0;
  for (const json& entry : result.at("repetitions")) {
    const Repetition range = {entry.at("first_sample"), entry.at("samples"), {}};
    // A number that no int holds may have become negative.
    if (range.first_sample != next || range.samples < 1) return false;
    if (range.samples > series.samples - next) return false;
    next += range.samples;
    RepetitionTimes repetition;
    repetition.samples_us = samples_of(samples, range);
    repetition.times = times_of(summarise(repetition.samples_us));
    repetition.sm_clock_mhz = clock_of(entry);
    series.repetitions.push_back(std::move(repetition));
  }
  return next == series.samples;
}

/// A result as a series; kInvalidArgument, with `place`, where its numbers are not usable.
Result<PerfSeries> series_of(const json& result, const std::string& path,
                             const std::string& place) {
  PerfSeries series;
  series.variant = result.at("variant");
  series.shape = result.at("shape");
  series.method = result.at("method");
  for (const char* key : {"B", "H", "H_kv", "S", "S_kv", "D"}) {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
    if (result.at(key).get<double>() <= kLargest) continue;
    return refused(path, place + "/" + key + ": got " + result.at(key).dump() +
                             ", expected at most " + std::to_string(kLargest));
  }
  series.sizes = {.name = series.shape,
                  .batch = result.at("B"),
                  .heads_q = result.at("H"),
                  .heads_kv = result.at("H_kv"),
                  .seq_q = result.at("S"),
                  .seq_kv = result.at("S_kv"),
                  .head_dim = result.at("D"),
                  .mask = result.at("mask") == "causal" ? Mask::kCausal : Mask::kNone,
                  .inputs = {},
                  .suites = {}};
  series.times = {result.at("p50_us"), result.at("p90_us"), result.at("mean_us"),
                  result.at("std_us")};
  series.tflops = result.at("tflops");
  series.interval = result.at("p50_interval_us").get<std::pair<double, double>>();
  series.interleaved = result.at("interleaved");
  series.marked_samples = result.at("marked_samples");
  if (!read_repetitions(result, series)) {
    return refused(path, place +
                             "/repetitions: expected all samples of samples_us, each once and "
                             "in order");
  }
  return series;
}

Result<PerfFile> times_of(const json& document, const std::string& path) {
  PerfFile file;
  file.path = path;
  file.backend = document.at("backend");
  if (document.at("device").is_object()) file.device = document.at("/device/name"_json_pointer);
  file.timestamp = document.at("timestamp");
  const json& git = document.at("git");
  file.commit = commit_text(git.at("sha"), git.at("dirty"));
  for (const json& result : document.at("results")) {
    const std::string place = "/results/" + std::to_string(file.series.size());
    auto series = series_of(result, path, place);
    if (!series.ok()) return series.status();
    if (file.find(series->variant, series->shape, series->method) != nullptr) {
      return refused(path, place + ": " + series->variant + " on " + series->shape + " by " +
                               series->method + " is there twice, expected once");
    }
    file.series.push_back(std::move(*series));
  }
  if (file.series.empty()) return refused(path, "/results: empty, expected measured series");
  return file;
}

Result<PerfFile> read_baseline(const std::string& path, const std::string& schema_folder) {
  const auto document = read_result_file(path, kPerfSchema, schema_folder);
  if (!document.ok()) return document.status();
  auto file = times_of(*document, path);
  if (!file.ok()) return file;
  if (Status s = add_gate_verdicts(*document, schema_folder, *file); !s.ok()) return s;
  return file;
}

// --- Google Benchmark ----------------------------------------------------------------------------

/// "forward/V/S", with or without a method's suffix,, with or without "/iterations:500/manual_time"
/// behind it.
std::optional<PerfSeries> series_of_name(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    parts.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  const auto is_suffix = [](const std::string& part) {
    return part == "manual_time" || part.rfind("iterations:", 0) == 0 ||
           part.rfind("repeats:", 0) == 0;
  };
  while (!parts.empty() && is_suffix(parts.back())) parts.pop_back();
  constexpr std::size_t kWarmParts = 3;
  if (parts.size() < kWarmParts || parts.size() > kWarmParts + 1 || parts[0] != "forward") {
    return std::nullopt;
  }
  PerfSeries series;
  series.variant = parts[1];
  series.shape = parts[2];
  const std::string suffix = parts.size() == kWarmParts ? "" : "/" + parts.back();
  for (const Method method : kMethods) {
    if (suffix != names_of(method).suffix) continue;
    series.method = name_of(method);
    return series;
  }
  return std::nullopt;
}

/// A counter; NaN, and a Status, where it is not a usable time.
double counter(const json& run, const std::string& place, const char* key, bool may_be_zero,
               const std::string& path, Status& status) {
  const json value = run.value(key, json());
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  const bool usable = std::isfinite(number) && (may_be_zero ? number >= 0 : number > 0);
  if (!usable && status.ok()) {
    status = refused(path, place + "/" + key + ": got " + value.dump() + ", expected a time");
  }
  return number;
}

/// Google Benchmark's text in the context, or "".
std::string context_text(const json& document, const char* key) {
  const json& context = document.at("context");
  const auto found = context.is_object() ? context.find(key) : context.end();
  return found != context.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Adds one repetition to the file's series; `counts` holds how many each has.
Status add_run(const json& run, const std::string& place, PerfFile& file,
               std::vector<int>& counts) {
  if (!run.is_object() || !run.value("name", json()).is_string()) {
    return refused(file.path, place + "/name: missing, expected a benchmark's name");
  }
  if (run.value("run_type", json("iteration")) != "iteration") return {};
  auto series = series_of_name(run.at("name").get<std::string>());
  if (!series) return {};
  auto at = std::find_if(file.series.begin(), file.series.end(), [&](const PerfSeries& s) {
    return s.variant == series->variant && s.shape == series->shape && s.method == series->method;
  });
  if (at == file.series.end()) {
    file.series.push_back(*series);
    counts.push_back(0);
    at = file.series.end() - 1;
  }
  int& count = counts[static_cast<std::size_t>(at - file.series.begin())];
  if (run.value("error_occurred", json(false)) == true) {
    const json message = run.value("error_message", json());
    at->gate_failure =
        message.is_string() ? one_line(message.get<std::string>()) : "no reason given";
    return {};
  }
  Status status;
  const auto read = [&](const char* key, bool may_be_zero) {
    return counter(run, place, key, may_be_zero, file.path, status);
  };
  const SeriesTimes times = {read("p50_us", false), read("p90_us", false), read("mean_us", false),
                             read("std_us", true)};
  if (!status.ok()) return status;
  ++count;
  at->repetitions.push_back({times, clock_of(run), {}});
  constexpr std::int64_t kMostIterations = 1'000'000'000;
  const json iterations = run.value("iterations", json());
  if (iterations.is_number_integer()) {
    at->samples += std::clamp<std::int64_t>(iterations.get<std::int64_t>(), 0, kMostIterations);
  }
  for (double SeriesTimes::*field :
       {&SeriesTimes::p50, &SeriesTimes::p90, &SeriesTimes::mean, &SeriesTimes::std}) {
    at->times.*field += (times.*field - at->times.*field) / count;
  }
  return {};
}

/// Google Benchmark's file has no marks of its own; the rule is the same (repetitions.hpp).
void mark_slow_repetitions(PerfFile& file) {
  std::vector<double> clocks;
  for (const PerfSeries& series : file.series) {
    for (const RepetitionTimes& repetition : series.repetitions) {
      if (repetition.sm_clock_mhz) clocks.push_back(*repetition.sm_clock_mhz);
    }
  }
  const auto expected = expected_clock(std::move(clocks));
  for (PerfSeries& series : file.series) {
    const auto each = series.samples / std::max<std::int64_t>(1, std::ssize(series.repetitions));
    for (const RepetitionTimes& repetition : series.repetitions) {
      if (repetition.sm_clock_mhz && *repetition.sm_clock_mhz < kClockShare * *expected) {
        series.marked_samples += each;
      }
    }
  }
}

Result<PerfFile> read_google_benchmark(const json& document, const std::string& path) {
  PerfFile file;
  file.path = path;
  file.of_google_benchmark = true;
  file.backend = context_text(document, "backend");
  if (file.backend.empty()) {
    return refused(path, "/context/backend: missing, expected a file that fp8_sdpa_bench wrote");
  }
  file.device = context_text(document, "device_name");
  file.timestamp = context_text(document, "date");
  file.commit =
      commit_text(context_text(document, "git_sha"), context_text(document, "git_dirty") == "true");
  const json& runs = document.at("benchmarks");
  if (!runs.is_array()) return refused(path, "/benchmarks: expected an array");
  std::vector<int> counts;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string place = "/benchmarks/" + std::to_string(i);
    if (Status s = add_run(runs[i], place, file, counts); !s.ok()) return s;
  }
  if (file.series.empty()) {
    return refused(path, "/benchmarks: no forward/VARIANT/SHAPE, expected measured series");
  }
  const bool in_turns = context_text(document, "random_interleaving") == "true";
  for (PerfSeries& series : file.series) series.interleaved = in_turns;
  mark_slow_repetitions(file);
  return file;
}

}  // namespace

std::optional<double> sm_clock_of(const PerfSeries& series) {
  std::vector<double> clocks;
  for (const RepetitionTimes& repetition : series.repetitions) {
    if (repetition.sm_clock_mhz) clocks.push_back(*repetition.sm_clock_mhz);
  }
  return expected_clock(std::move(clocks));
}

const PerfSeries* PerfFile::find(const std::string& variant, const std::string& shape,
                                 const std::string& method) const {
  const auto found = std::find_if(series.begin(), series.end(), [&](const PerfSeries& s) {
    return s.variant == variant && s.shape == shape && s.method == method;
  });
  return found == series.end() ? nullptr : &*found;
}

std::vector<std::string> PerfFile::variants() const {
  std::vector<std::string> names;
  for (const PerfSeries& s : series) append_once(names, s.variant);
  return names;
}

std::vector<std::string> PerfFile::shapes(const std::string& variant,
                                          const std::string& method) const {
  std::vector<std::string> names;
  for (const PerfSeries& s : series) {
    if (s.variant == variant && s.method == method) append_once(names, s.shape);
  }
  return names;
}

Result<PerfFile> read_times(const std::string& path, const std::string& schema_folder) {
  const auto document = read_result_file(path, kPerfSchema, schema_folder);
  if (!document.ok()) return document.status();
  return times_of(*document, path);
}

Result<PerfFile> read_perf_file(const std::string& path, const std::string& schema_folder) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? (std::filesystem::path(path) / kPerfFile).string() : path;
  const auto document = read_json(file);
  if (!document.ok()) return document.status();
  if (document->is_object() && document->contains("context") && document->contains("benchmarks")) {
    return read_google_benchmark(*document, file);
  }
  if (!document->is_object() || !document->contains("schema_version")) {
    return refused(file,
                   "neither a " + std::string(kPerfFile) + " nor a file that fp8_sdpa_bench wrote");
  }
  return read_baseline(file, schema_folder);
}

}  // namespace fp8_sdpa::bench
