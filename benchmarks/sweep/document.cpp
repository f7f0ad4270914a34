#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "benchmarks/command/text.hpp"
#include "benchmarks/sweep/cost_model.hpp"
#include "benchmarks/sweep/sweep.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

json to_json(const SweepRecord& record) {
  const reference::Shape& shape = record.shape;
  return {
      {"variant", record.variant},
      {"shape", shape.name},
      {"level", record.level},
      {"B", shape.batch},
      {"H", shape.heads_q},
      {"S", shape.seq_q},
      {"D", shape.head_dim},
      {"tile_m", record.tile_m},
      {"tile_n", record.tile_n},
      {"steps", record.steps},
      {"events_us", record.events_us},
      {"graph_us", record.graph_us},
      {"tflops", tflops(shape, record.graph_us)},
      {"tensor_bytes", tensor_bytes(shape)},
      {"device_bytes", record.device_bytes},
  };
}

/// Sorts the results, and adds what follows from all of them together.
void complete(json& document) {
  json& results = document["results"];
  const auto key = [](const json& result) {
    return std::tuple(result.at("level").get<int>(), result.at("S").get<int>(),
                      result.at("variant").get<std::string>());
  };
  std::sort(results.begin(), results.end(),
            [&](const json& a, const json& b) { return key(a) < key(b); });
  std::sort(document["left_out"].begin(), document["left_out"].end());
  std::map<std::string, std::vector<CostPoint>> of_variant;
  for (const json& result : results) {
    of_variant[result.at("variant")].push_back({result.at("steps"), result.at("graph_us")});
  }
  document["fits"] = json::array();
  for (const auto& [variant, points] : of_variant) {
    const auto model = fit_cost_model(points);
    for (json& result : results) {
      if (result.at("variant") != variant) continue;
      const CostPoint point{result.at("steps"), result.at("graph_us")};
      result["model_us"] = model.ok() ? json(model->predict_us(point.steps)) : json();
      result["departure"] = model.ok() ? json(departure(*model, point)) : json();
    }
    if (!model.ok()) continue;
    document["fits"].push_back({{"variant", variant},
                                {"launch_us", model->launch_us},
                                {"per_step_us", model->per_step_us},
                                {"places", points.size()},
                                {"rms_departure", rms_departure(*model, points)}});
  }
}

}  // namespace

json sweep_document(const RunInfo& run, const SweepResults& results) {
  json out = result_header(run);
  out["results"] = json::array();
  for (const SweepRecord& record : results.records) out["results"].push_back(to_json(record));
  out["left_out"] = json::array();
  for (const SweepGap& gap : results.left_out) {
    out["left_out"].push_back(
        {{"shape", gap.shape}, {"variant", gap.variant}, {"reason", gap.reason}});
  }
  complete(out);
  return out;
}

Result<json> merge_sweeps(const std::vector<json>& parts) {
  json merged = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    for (const char* path : {"/schema_version", "/backend", "/git", "/device/name",
                             "/device/cuda_version", "/device/driver_version"}) {
      const json::json_pointer at(path);
      const json ours = merged.contains(at) ? merged.at(at) : json();
      const json theirs = parts[i].contains(at) ? parts[i].at(at) : json();
      if (ours != theirs) {
        return invalid_argument("part " + std::to_string(i) + ": " + path + ": got " +
                                theirs.dump() + ", expected " + ours.dump() +
                                " as in the first part");
      }
    }
    for (const char* list : {"results", "left_out"}) {
      for (const json& entry : parts[i].at(list)) merged[list].push_back(entry);
    }
  }
  std::map<std::pair<std::string, std::string>, int> seen;
  for (const json& result : merged.at("results")) {
    if (++seen[{result.at("shape"), result.at("variant")}] > 1) {
      return invalid_argument(result.at("variant").get<std::string>() + " at " +
                              result.at("shape").get<std::string>() +
                              " is there twice, expected each place in one part");
    }
  }
  complete(merged);
  return merged;
}

std::string sweep_table(const json& document) {
  constexpr std::size_t kShown = 5;
  std::string out =
      "| variant | launch us | us per tile | places | rms departure |\n"
      "|---|---|---|---|---|\n";
  for (const json& fit : document.at("fits")) {
    out += "| " + fit.at("variant").get<std::string>() +
           format(" | %.2f | %.4f | %d | %.1f %% |\n", fit.at("launch_us").get<double>(),
                  fit.at("per_step_us").get<double>(), fit.at("places").get<int>(),
                  100 * fit.at("rms_departure").get<double>());
  }
  std::vector<const json*> departing;
  for (const json& result : document.at("results")) {
    if (result.at("departure").is_number()) departing.push_back(&result);
  }
  const auto size = [](const json* result) {
    return std::fabs(result->at("departure").get<double>());
  };
  std::stable_sort(departing.begin(), departing.end(),
                   [&](const json* a, const json* b) { return size(a) > size(b); });
  out += "\n| departs most | variant | us | model us | departure |\n|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < std::min(kShown, departing.size()); ++i) {
    const json& result = *departing[i];
    out += "| " + result.at("shape").get<std::string>() + " | " +
           result.at("variant").get<std::string>() +
           format(" | %.2f | %.2f | %+.1f %% |\n", result.at("graph_us").get<double>(),
                  result.at("model_us").get<double>(), 100 * result.at("departure").get<double>());
  }
  for (const json& gap : document.at("left_out")) {
    out += "\n" + gap.at("variant").get<std::string>() + " at " +
           gap.at("shape").get<std::string>() +
           " is left out: " + gap.at("reason").get<std::string>() + "\n";
  }
  return out;
}

}  // namespace fp8_sdpa::bench
