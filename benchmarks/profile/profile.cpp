#include "benchmarks/profile/profile.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/command/text.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/measure/phase.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr const char* kLeftOut =
    "left out: profile.ncu-rep, profile.csv and the verdict (the log is ";

std::string file_of(const ProfileRequest& request, const char* name) {
  return request.folder + "/" + name;
}

/// The last line of a log that says something, for a message.
std::string last_line(const std::string& log) {
  std::istringstream lines(log);
  std::string line;
  std::string last = "nothing";
  while (std::getline(lines, line)) {
    if (line.find_first_not_of(" \r\t") != std::string::npos) last = line;
  }
  constexpr std::size_t kLimit = 200;
  return reference::one_line(last, kLimit);
}

/// Why there is no profile, or success.
Status check_run(const ProfileRequest& request, const ProcessResult& run) {
  const std::string log = kLeftOut + reference::one_line(file_of(request, "profile.log")) + ")";
  for (const char* sign :
       {"ERR_NVGPUCTRPERM", "LibraryNotLoaded", "Failed to initialize the profiler"}) {
    if (run.output.find(sign) == std::string::npos) continue;
    return unsupported("ncu may not read the GPU's counters here (" + std::string(sign) +
                       "): " + log);
  }
  if (run.exit_code != 0) {
    return invalid_argument("ncu or the run under it ended with exit code " +
                            std::to_string(run.exit_code) + " (\"" + last_line(run.output) +
                            "\"): " + log);
  }
  std::error_code ignored;
  if (!std::filesystem::exists(file_of(request, "profile.ncu-rep"), ignored)) {
    return invalid_argument("ncu profiled no launch (\"" + last_line(run.output) + "\"): " + log);
  }
  return {};
}

}  // namespace

std::vector<std::string> known_metrics(const std::string& listing) {
  std::vector<std::string> words;
  std::istringstream stream(listing);
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<std::string> known;
  for (const std::string& metric : ncu_metrics()) {
    const std::string base = metric.substr(0, metric.find('.'));
    if (std::find(words.begin(), words.end(), base) != words.end()) known.push_back(metric);
  }
  return known.empty() ? ncu_metrics() : known;
}

std::vector<std::string> ncu_command(const ProfileRequest& request,
                                     const std::vector<std::string>& metrics) {
  const std::string iters = std::to_string(request.iters);
  std::vector<std::string> command = {request.ncu, "--force-overwrite"};
  const auto add = [&](const char* flag, const std::string& value) {
    command.insert(command.end(), {flag, value});
  };
  add("--export", file_of(request, "profile.ncu-rep"));
  add("--clock-control", "none");
  add("--cache-control", "none");
  command.emplace_back("--nvtx");
  add("--nvtx-include", std::string(kPhaseDomain) + "@" + kPhaseTiming + "/");
  add("--launch-count", iters);
  add("--metrics", join(metrics, ","));
  command.push_back(request.runner);
  add("--backend", "device");
  add("--config", request.config);
  add("--shapes", request.shape);
  add("--seeds", std::to_string(request.seed));
  add("--variants", request.variant);
  add("--iters", iters);
  add("--out", file_of(request, "run"));
  return command;
}

Result<ProfileVerdict> profile(const ProfileRequest& request, const std::string& schema_folder) {
  const auto listing = run_process({request.ncu, "--query-metrics"}, Stderr::kDrop);
  if (!listing.ok()) return listing.status();
  const auto metrics = known_metrics(listing->exit_code == 0 ? listing->output : std::string());
  const auto command = ncu_command(request, metrics);
  const auto run = run_process(command, Stderr::kKeep);
  if (!run.ok()) return run.status();
  const std::string log = "$ " + join(command, " ") + "\n" + run->output;
  if (Status s = replace_file(file_of(request, "profile.log"), log); !s.ok()) return s;
  if (Status s = check_run(request, *run); !s.ok()) return s;
  const auto csv = run_process({request.ncu, "--import", file_of(request, "profile.ncu-rep"),
                                "--page", "raw", "--csv", "--print-units", "base"},
                               Stderr::kDrop);
  if (!csv.ok()) return csv.status();
  const std::string csv_file = file_of(request, "profile.csv");
  if (Status s = replace_file(csv_file, csv->output); !s.ok()) return s;
  const auto counters = parse_ncu_csv(csv->output, csv_file);
  if (!counters.ok()) return counters.status();
  auto verdict = judge_profile(*counters);
  if (!verdict.ok()) return invalid_argument(csv_file + ": " + verdict.status().message());
  // Where and of what the profile is, the run under ncu has written down.
  const auto meta =
      read_result_file(file_of(request, "run/") + kBuildMetaFile, "build_meta", schema_folder);
  if (!meta.ok()) return meta.status();
  auto document = verdict_json(*counters, *verdict, request.shape, request.variant);
  for (const char* key : {"timestamp", "backend", "git", "device"}) document[key] = meta->at(key);
  for (const auto& [name, text] : {
           std::pair{kProfileVerdictFile, file_text(document)},
           std::pair{"verdict.txt",
                     verdict_text(*counters, *verdict, request.shape, request.variant)},
       }) {
    if (Status s = replace_file(file_of(request, name), text); !s.ok()) return s;
  }
  return verdict;
}

}  // namespace fp8_sdpa::bench
