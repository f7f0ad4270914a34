// What a report is made of: the files of result folders, each read by itself, so that a broken one
// takes nothing else with it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/files/perf_file.hpp"
#include "benchmarks/files/verdicts.hpp"

namespace fp8_sdpa::bench {

/// "stage_c" of "stage_c_cp_async", "sm90" of "sm90_ping_pong", "peer" of a peer.
std::string family_of(const std::string& variant);

/// A folder that the runner wrote.
struct ReportRun {
  std::string folder;
  std::string device;         ///< its name; "host executor" where there was none
  nlohmann::json build_meta;  ///< null where it was left out
  bool gated = true;          ///< false: outputs were compared with each other, by no gate of ours
  std::vector<PerfSeries> series;  ///< ours passed their gates; a peer's may have failed
  GateVerdicts verdicts;

  const GateVerdict* verdict(const std::string& variant, const std::string& shape) const;
  const PerfSeries* find(const std::string& variant, const std::string& shape,
                         const std::string& method) const;
  /// Whether the gates passed what was timed.
  bool is_green(const PerfSeries& timed) const;
  /// Of the series, in their order and without duplicates: what `member` picks.
  template <class Pick>
  std::vector<std::string> names(const Pick& pick) const;
};

/// Files beside those of runs are kept as they are: each has the form of its schema.
struct ReportData {
  std::vector<ReportRun> runs;
  std::vector<nlohmann::json> ceilings;
  std::vector<nlohmann::json> sweeps;
  std::vector<nlohmann::json> servings;
  std::vector<nlohmann::json> unquantised;  ///< from bf16 to bf16, of fp8_sdpa_peers
  std::vector<nlohmann::json> profiles;     ///< verdict.json of fp8_sdpa_profile
  nlohmann::json kill_matrix;               ///< null where there is none
  std::vector<std::string> refused;         ///< a line for each file or folder that cannot be used
  std::vector<std::string> left_out;        ///< a line for what was not asked for or not measured

  bool empty() const {
    return runs.empty() && ceilings.empty() && sweeps.empty() && servings.empty() &&
           unquantised.empty() && profiles.empty();
  }
  /// The device's fastest FP8 matrix multiply in TFLOP/s, 0 where none was measured.
  double ceiling_tflops(const std::string& device) const;
};

/// The name of a result file's device.
std::string device_of(const nlohmann::json& document);

/// Reads every folder and the kill matrix.
ReportData read_report_data(const std::vector<std::string>& folders, const std::string& kill_matrix,
                            const std::string& schemas = default_schema_folder());

template <class Pick>
std::vector<std::string> ReportRun::names(const Pick& pick) const {
  std::vector<std::string> out;
  for (const PerfSeries& timed : series) {
    const std::string name = pick(timed);
    bool known = name.empty();
    for (const std::string& other : out) known = known || other == name;
    if (!known) out.push_back(name);
  }
  return out;
}

}  // namespace fp8_sdpa::bench
