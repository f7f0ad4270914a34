// Times that were measured on a GPU, kept in recorded/, for tests that need real noise:
// quantised, skewed, drifting, alike from one sample to the next.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/statistics/repetitions.hpp"
#include "benchmarks/statistics/stats.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {

inline const std::string kRecordedFolder =
    std::string(FP8_SDPA_SOURCE_DIR) + "/tests/tools/recorded/";

/// Samples in microseconds. `text`: ticks of the events' clock above `lowest`, the last digit of
/// each in base 70 from '9' on, those before it in base 24 from '!' on; a sample is of `launches`
/// launches.
inline std::vector<double> decoded_samples(const std::string& text, int lowest, int launches) {
  std::vector<double> samples;
  int above = 0;
  for (const char c : text) {
    if (c < '9') {
      above = 24 * above + (c - '!');
      continue;
    }
    const int ticks = lowest + 70 * above + (c - '9');
    const auto milliseconds = static_cast<float>(ticks * 0.032 / 1000);  // as CUDA's events tell it
    samples.push_back(milliseconds * 1000.0 / launches);
    above = 0;
  }
  return samples;
}

/// A run of the ladder as version 1 wrote it: perf_baseline.json has a result of each shape,
/// times.txt the samples of all.
inline nlohmann::json recorded_file() {
  std::ifstream head(kRecordedFolder + "perf_baseline.json");
  nlohmann::json file = nlohmann::json::parse(head, nullptr, /*allow_exceptions=*/false);
  std::map<std::string, nlohmann::json> of_shape;
  for (const nlohmann::json& result : file["results"]) of_shape[result["shape"]] = result;
  file["results"] = nlohmann::json::array();
  std::ifstream times(kRecordedFolder + "times.txt");
  std::string variant, shape, method, text;
  int launches = 0;
  int lowest = 0;
  while (times >> variant >> shape >> method >> launches >> lowest >> text) {
    nlohmann::json result = of_shape.at(shape);
    result["variant"] = variant;
    result["method"] = method;
    result["samples_us"] = decoded_samples(text, lowest, launches);
    file["results"].push_back(std::move(result));
  }
  return file;
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

/// The gates' verdict on a recorded run: every variant passed on every shape.
inline nlohmann::json recorded_verdicts(const nlohmann::json& file) {
  std::vector<CorrectnessRecord> judged;
  for (const nlohmann::json& result : file["results"]) {
    if (result["method"] != "events_l2_warm") continue;
    judged.push_back(made_verdict(result["variant"], result["shape"], true));
  }
  nlohmann::json summary = correctness_summary(made_run(), judged);
  for (const char* key : {"timestamp", "backend", "git", "device"}) summary[key] = file[key];
  return summary;
}

}  // namespace fp8_sdpa::bench
