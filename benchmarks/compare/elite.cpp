#include "benchmarks/compare/elite.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/command/text.hpp"
#include "benchmarks/compare/comparable.hpp"
#include "benchmarks/compare/compare.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/files/validate.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::one_line;

std::vector<std::string> names_of(const std::map<std::string, double>& shapes) {
  std::vector<std::string> names;
  for (const auto& [name, speedup] : shapes) names.push_back(name);
  return names;
}

/// Sorted names of the shapes that the baseline was measured on.
Result<std::vector<std::string>> baseline_shapes(const PerfFile& file, const std::string& baseline,
                                                 const std::string& method) {
  std::vector<std::string> shapes = file.shapes(baseline, method);
  if (shapes.empty()) {
    return refused(file, "no baseline " + one_line(baseline) + " by " + one_line(method) +
                             ", expected one of " + join(file.variants()));
  }
  std::sort(shapes.begin(), shapes.end());
  for (const std::string& shape : shapes) {
    const std::string& failure = file.find(baseline, shape, method)->gate_failure;
    if (!failure.empty()) {
      return refused(file,
                     "gates of the baseline " + baseline + " on " + shape + " failed: " + failure);
    }
  }
  return shapes;
}

Status check_comparable(const Elite& elite, const PerfFile& file, const std::string& baseline,
                        const std::string& method, const std::vector<std::string>& shapes) {
  if (elite.entries.empty()) return {};
  const auto differs = [&](const char* what, const std::string& got, const std::string& expected) {
    return refused(file, std::string(what) + " " + one_line(got) + ", expected " +
                             one_line(expected) + " as in the elite file");
  };
  if (elite.baseline != baseline) return differs("baseline", baseline, elite.baseline);
  if (elite.method != method) return differs("method", method, elite.method);
  if (elite.backend != file.backend) return differs("backend", file.backend, elite.backend);
  if (elite.device != file.device) return differs("device", file.device, elite.device);
  const auto expected = names_of(elite.entries.front().shapes);
  if (shapes != expected) return differs("shapes", join(shapes), join(expected));
  return {};
}

/// A variant's figures, or, in `why`, what keeps it out.
std::optional<EliteEntry> measure(const PerfFile& file, const std::string& variant,
                                  const std::string& baseline, const std::string& method,
                                  const std::vector<std::string>& shapes, std::string& why) {
  EliteEntry entry{variant, 0, {}, file.timestamp, file.commit};
  std::vector<double> speedups;
  std::vector<std::string> slower;
  for (const std::string& shape : shapes) {
    const PerfSeries* series = file.find(variant, shape, method);
    if (series == nullptr) {
      why = "not measured on " + shape;
      return std::nullopt;
    }
    if (!series->gate_failure.empty()) {
      why = "gates failed on " + shape + ": " + series->gate_failure;
      return std::nullopt;
    }
    const double speedup = file.find(baseline, shape, method)->times.p50 / series->times.p50;
    entry.shapes[shape] = speedup;
    speedups.push_back(speedup);
    if (!(speedup >= 1 - kRegressionNoise)) {
      slower.push_back(format("%s %.3fx", shape.c_str(), speedup));
    }
  }
  if (slower.size() >= static_cast<std::size_t>(kEliteRegressions)) {
    why = format("slower than %s on %zu shapes: %s", baseline.c_str(), slower.size(),
                 join(slower).c_str());
    return std::nullopt;
  }
  entry.speedup = geometric_mean(speedups);
  if (!std::isfinite(entry.speedup)) {
    why = "its times are no numbers";
    return std::nullopt;
  }
  return entry;
}

bool faster(const EliteEntry& a, const EliteEntry& b) {
  return a.speedup != b.speedup ? a.speedup > b.speedup : a.variant < b.variant;
}

/// Puts a newcomer in its place, or says why not.
void admit(const EliteEntry& entry, EliteUpdate& update) {
  std::vector<EliteEntry>& entries = update.elite.entries;
  const std::string speedup = format("%.3fx", entry.speedup);
  if (entries.size() == kEliteSize) {
    const EliteEntry third = entries.back();
    if (!(entry.speedup >= third.speedup * kEliteGain)) {
      update.notes.push_back(
          format("%s dropped: %s gains %+.1f %% over the third, %s (%.3fx); %.0f %% is asked",
                 entry.variant.c_str(), speedup.c_str(), 100 * (entry.speedup / third.speedup - 1),
                 third.variant.c_str(), third.speedup, 100 * (kEliteGain - 1)));
      return;
    }
    entries.pop_back();
    update.notes.push_back(entry.variant + " joins with " + speedup + "; " + third.variant +
                           format(" (%.3fx) leaves", third.speedup));
  } else {
    update.notes.push_back(entry.variant + " joins with " + speedup);
  }
  entries.push_back(entry);
  std::sort(entries.begin(), entries.end(), faster);
}

}  // namespace

Result<Elite> read_elite(const std::string& path, const std::string& schema_folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return Elite{};
  const auto document = read_result_file(path, "elite", schema_folder);
  if (!document.ok()) return document.status();
  Elite elite{document->at("baseline"),
              document->at("method"),
              document->at("backend"),
              document->at("/device/name"_json_pointer),
              {}};
  for (const json& item : document->at("elite")) {
    EliteEntry entry{item.at("variant"), item.at("speedup"), item.at("shapes"),
                     item.at("timestamp"), item.at("commit")};
    const std::string place = "/elite/" + std::to_string(elite.entries.size());
    if (!elite.entries.empty() &&
        names_of(entry.shapes) != names_of(elite.entries.front().shapes)) {
      return invalid_argument(one_line(path) + ": " + place + "/shapes: expected " +
                              join(names_of(elite.entries.front().shapes)) +
                              " as in the first entry");
    }
    for (const EliteEntry& other : elite.entries) {
      if (other.variant == entry.variant) {
        return invalid_argument(one_line(path) + ": " + place + "/variant: " + entry.variant +
                                " is there twice, expected once");
      }
    }
    elite.entries.push_back(std::move(entry));
  }
  std::sort(elite.entries.begin(), elite.entries.end(), faster);
  return elite;
}

Result<EliteUpdate> update_elite(const Elite& elite, const PerfFile& file,
                                 const std::string& baseline, const std::string& method) {
  const auto shapes = baseline_shapes(file, baseline, method);
  if (!shapes.ok()) return shapes.status();
  if (Status s = check_comparable(elite, file, baseline, method, *shapes); !s.ok()) return s;
  EliteUpdate update{{baseline, method, file.backend, file.device, elite.entries}, {}};
  std::vector<EliteEntry>& entries = update.elite.entries;
  std::vector<EliteEntry> newcomers;
  for (const std::string& variant : file.variants()) {
    if (variant == baseline) continue;
    std::string why;
    auto entry = measure(file, variant, baseline, method, *shapes, why);
    const auto member = std::find_if(entries.begin(), entries.end(),
                                     [&](const EliteEntry& e) { return e.variant == variant; });
    if (!entry) {
      if (member != entries.end()) entries.erase(member);
      update.notes.push_back(variant + " dropped: " + why);
    } else if (member != entries.end()) {
      update.notes.push_back(format("%s measured again: %.3fx, was %.3fx", variant.c_str(),
                                    entry->speedup, member->speedup));
      *member = *entry;
    } else {
      newcomers.push_back(*entry);
    }
  }
  std::sort(entries.begin(), entries.end(), faster);
  // Fastest first, so that the outcome does not depend on the order of the file.
  std::sort(newcomers.begin(), newcomers.end(), faster);
  for (const EliteEntry& entry : newcomers) admit(entry, update);
  return update;
}

json to_json(const Elite& elite) {
  json out = {{"schema_version", kResultSchemaVersion},
              {"baseline", elite.baseline},
              {"method", elite.method},
              {"backend", elite.backend},
              {"device", {{"name", elite.device}}},
              {"elite", json::array()}};
  for (const EliteEntry& entry : elite.entries) {
    out["elite"].push_back({{"variant", entry.variant},
                            {"speedup", entry.speedup},
                            {"shapes", entry.shapes},
                            {"timestamp", entry.timestamp},
                            {"commit", entry.commit}});
  }
  return out;
}

}  // namespace fp8_sdpa::bench
