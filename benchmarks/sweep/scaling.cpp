#include "benchmarks/sweep/scaling.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "benchmarks/command/text.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

/// What differs between two measurements of the same sweep point.
const std::set<std::string> kMeasured = {"events_us", "graph_us",  "tflops",
                                         "model_us",  "departure", "device_bytes"};

Status different(const std::string& what) {
  return {StatusCode::kExecutorError, "the sweeps differ: " + what};
}

std::string place_of(const json& entry) {
  return entry.at("variant").get<std::string>() + " at " + entry.at("shape").get<std::string>();
}

/// A document's results by sweep point.
std::map<std::string, json> results_of(const json& document) {
  std::map<std::string, json> results;
  for (const json& result : document.at("results")) results[place_of(result)] = result;
  return results;
}

std::set<std::string> gaps_of(const json& document) {
  std::set<std::string> gaps;
  for (const json& gap : document.at("left_out")) gaps.insert(place_of(gap));
  return gaps;
}

/// The first name that is in one alone, or nothing.
std::string in_one_alone(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::vector<std::string> alone;
  std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(alone));
  return alone.empty() ? "" : alone.front();
}

std::set<std::string> names_of(const std::map<std::string, json>& results) {
  std::set<std::string> names;
  for (const auto& [name, result] : results) names.insert(name);
  return names;
}

json without_times(json result) {
  for (const std::string& key : kMeasured) result.erase(key);
  return result;
}

json to_json(const SweepRun& run) { return {{"gpus", run.gpus}, {"seconds", run.seconds}}; }

}  // namespace

Result<SweepDifference> compare_sweeps(const json& one, const json& all) {
  const auto first = results_of(one);
  const auto second = results_of(all);
  if (const auto name = in_one_alone(names_of(first), names_of(second)); !name.empty()) {
    return different(name + " is in one alone");
  }
  if (const auto name = in_one_alone(gaps_of(one), gaps_of(all)); !name.empty()) {
    return different(name + " is left out of one alone");
  }
  SweepDifference out;
  std::vector<double> differences;
  for (const auto& [name, result] : first) {
    const json& other = second.at(name);
    if (without_times(result) != without_times(other)) {
      return different(name + ": " + without_times(result).dump() + " and " +
                       without_times(other).dump());
    }
    const double ratio = result.at("graph_us").get<double>() / other.at("graph_us").get<double>();
    differences.push_back(std::fabs(ratio - 1));
    if (differences.back() >= out.largest) {
      out.largest = differences.back();
      out.largest_at = name;
    }
  }
  if (differences.empty()) return different("neither has a place");
  out.places = static_cast<int>(differences.size());
  out.median = summarise(differences).p50;
  return out;
}

json scaling_document(const json& header, const SweepRun& one, const SweepRun& all,
                      const SweepDifference& difference) {
  json out;
  for (const char* key : {"schema_version", "timestamp", "backend", "git", "device"}) {
    out[key] = header.at(key);
  }
  out["one"] = to_json(one);
  out["all"] = to_json(all);
  out["share_of_time"] = all.seconds / one.seconds;
  out["ideal_share"] = static_cast<double>(one.gpus) / all.gpus;
  out["places"] = difference.places;
  out["median_difference"] = difference.median;
  out["largest_difference"] = difference.largest;
  out["largest_at"] = difference.largest_at;
  return out;
}

std::string scaling_line(const SweepRun& one, const SweepRun& all,
                         const SweepDifference& difference) {
  return format(
      "%d GPU: %.1f s, %d GPUs: %.1f s: %.2f of the time (1 / %d is %.2f); the same %d places and "
      "sizes, graph times apart by %.1f %% (median), %.1f %% at most (%s)",
      one.gpus, one.seconds, all.gpus, all.seconds, all.seconds / one.seconds, all.gpus / one.gpus,
      static_cast<double>(one.gpus) / all.gpus, difference.places, 100 * difference.median,
      100 * difference.largest, difference.largest_at.c_str());
}

}  // namespace fp8_sdpa::bench
