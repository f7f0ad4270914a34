// Times that were measured on a GPU and lie in this repository, for tests that need real noise:
// quantised, skewed, drifting, alike from one sample to the next.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/repetitions.hpp"
#include "benchmarks/stats.hpp"

namespace fp8_sdpa::bench {

inline const std::string kRecordedFolder =
    std::string(FP8_SDPA_SOURCE_DIR) + "/results/h200/ladder/";

/// The ladder's perf_baseline.json, of schema version 1.
inline nlohmann::json recorded_file() {
  std::ifstream file(kRecordedFolder + "perf_baseline.json");
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

/// As version 2 would have written it: samples of version 1 are in time's order, so that they can
/// be cut into repetitions; clocks were not read. `keep` picks samples by their index.
template <class Keep>
nlohmann::json in_repetitions(nlohmann::json file, const Keep& keep) {
  file["schema_version"] = 2;
  file["expected_sm_clock_mhz"] = nullptr;
  for (nlohmann::json& result : file["results"]) {
    std::vector<double> samples;
    for (std::size_t i = 0; i < result["samples_us"].size(); ++i) {
      if (keep(i)) samples.push_back(result["samples_us"][i]);
    }
    result["repetitions"] = nlohmann::json::array();
    for (const Repetition& r : split_into_repetitions(static_cast<int>(samples.size()))) {
      result["repetitions"].push_back({{"first_sample", r.first_sample},
                                       {"samples", r.samples},
                                       {"sm_clock_mhz", nullptr},
                                       {"throttle_reasons", nullptr},
                                       {"below_expected_clock", nullptr}});
    }
    const Summary summary = summarise(samples);
    result["p50_us"] = summary.p50;
    result["p90_us"] = summary.p90;
    result["mean_us"] = summary.mean;
    result["std_us"] = summary.std;
    result["min_us"] = summary.min;
    result["timed_iters"] = samples.size();
    result["p50_interval_us"] = {summary.p50, summary.p50};
    result["marked_samples"] = 0;
    result["samples_us"] = std::move(samples);
  }
  return file;
}

}  // namespace fp8_sdpa::bench
