#include "benchmarks/files/google_benchmark.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/statistics/repetitions.hpp"
#include "benchmarks/statistics/stats.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

constexpr const char* kAutomatic = "auto";

const CorrectnessRecord* verdict_on(const PerfRecord& record,
                                    const std::vector<CorrectnessRecord>& judged) {
  const auto found = std::find_if(judged.begin(), judged.end(), [&](const CorrectnessRecord& r) {
    return r.result.variant == record.variant && r.shape.name == record.shape.name;
  });
  return found == judged.end() ? nullptr : &*found;
}

std::string label_of(const PerfRecord& record, const std::vector<CorrectnessRecord>& judged,
                     bool automatic) {
  if (automatic) return record.variant;
  const CorrectnessRecord* verdict = verdict_on(record, judged);
  const bool failed = verdict != nullptr && !verdict->result.pass;
  return failed ? "gates failed: " + verdict->result.failure() : "";
}

/// The graph's median beside an event-timed series.
std::optional<double> graph_median(const PerfRecord& record,
                                   const std::vector<PerfRecord>& records) {
  const auto graph = std::find_if(records.begin(), records.end(), [&](const PerfRecord& r) {
    return r.method == Method::kGraphWarm && r.variant == record.variant &&
           r.shape.name == record.shape.name;
  });
  if (graph == records.end()) return std::nullopt;
  return summarise(graph->samples_us).p50;
}

/// Whether nobody else was timed on its shape: then there was nobody to be interleaved with.
bool is_alone(const PerfRecord& record, const std::vector<PerfRecord>& records) {
  return std::none_of(records.begin(), records.end(), [&](const PerfRecord& other) {
    return other.shape.name == record.shape.name && other.variant != record.variant;
  });
}

/// One repetition: times as fp8_sdpa_bench's counters have them.
json entry_of(const PerfRecord& record, const std::string& name, std::size_t family,
              std::size_t index) {
  const Repetition& repetition = record.repetitions[index];
  const Summary summary = summarise(samples_of(record.samples_us, repetition));
  json entry = {
      {"name", name},
      {"family_index", family},
      {"per_family_instance_index", 0},
      {"run_name", name},
      {"run_type", "iteration"},
      {"repetitions", record.repetitions.size()},
      {"repetition_index", index},
      {"threads", 1},
      {"iterations", repetition.samples},
      {"real_time", summary.mean},
      {"cpu_time", summary.mean},
      {"time_unit", "us"},
      {"p50_us", summary.p50},
      {"p90_us", summary.p90},
      {"mean_us", summary.mean},
      {"std_us", summary.std},
      {"tflops", tflops(record.shape, summary.p50)},
  };
  if (repetition.clocks.sm_clock_mhz) entry["sm_clock_mhz"] = *repetition.clocks.sm_clock_mhz;
  return entry;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> benchmark_context(const Device& device,
                                                                   const DeviceInfo* info) {
  const BuildInfo build = this_build();
  const auto megahertz = [](const std::optional<int>& clock) {
    return clock ? std::to_string(*clock) : std::string("unknown");
  };
  std::vector<std::pair<std::string, std::string>> context = {{"backend", name_of(device.backend)},
                                                              {"device_name", device.name}};
  if (info != nullptr) {
    const NvmlReport& nvml = info->nvml;
    context.insert(
        context.end(),
        {{"sm_version", std::to_string(info->sm_version)},
         {"cuda_version", info->cuda_version},
         {"driver_version", nvml.driver_version.value_or("unknown")},
         {"sm_clock_mhz", megahertz(nvml.sm_clock_mhz)},
         {"sm_clock_max_mhz", megahertz(nvml.sm_clock_max_mhz)},
         {"memory_clock_mhz", megahertz(nvml.memory_clock_mhz)},
         {"memory_clock_max_mhz", megahertz(nvml.memory_clock_max_mhz)},
         {"power_limit_watts",
          nvml.power_limit_watts ? reference::text_of(*nvml.power_limit_watts) : "unknown"}});
  }
  context.insert(context.end(), {{"git_sha", build.git_sha},
                                 {"git_branch", build.git_branch},
                                 {"git_dirty", build.git_dirty ? "true" : "false"},
                                 {"toggles", describe(build.toggles)},
                                 {"debug_print", build.debug_print ? "1" : "0"},
                                 {"compiler", build.compiler},
                                 {"cuda_compiler", build.cuda_compiler},
                                 {"cuda_archs", build.cuda_archs},
                                 {"build_type", build.build_type}});
  return context;
}

std::string series_name(const std::string& variant, const std::string& shape, Method method) {
  const bool peer = variant.starts_with(kPeerPrefix);
  const std::string name =
      "forward/" + (peer ? variant.substr(kPeerPrefix.size()) : variant) + "/" + shape;
  return name + names_of(method).suffix;
}

json benchmark_document(const RunInfo& run, const Device& device,
                        const std::vector<PerfRecord>& records,
                        const std::vector<CorrectnessRecord>& judged, bool automatic) {
  json document = {
      {"context", {{"date", iso_timestamp(run.start)}, {"executable", "fp8_sdpa_peers"}}},
      {"benchmarks", json::array()}};
  for (const auto& [key, value] : benchmark_context(device, run.device ? &*run.device : nullptr)) {
    document["context"][key] = value;
  }
  const bool in_turns = std::all_of(records.begin(), records.end(), [&](const PerfRecord& record) {
    return record.interleaved || is_alone(record, records);
  });
  document["context"]["random_interleaving"] = in_turns ? "true" : "false";
  for (std::size_t family = 0; family < records.size(); ++family) {
    const PerfRecord& record = records[family];
    const bool chosen = automatic && !record.variant.starts_with(kPeerPrefix);
    const std::string name =
        series_name(chosen ? kAutomatic : record.variant, record.shape.name, record.method);
    const std::string label = label_of(record, judged, chosen);
    const auto graph_us =
        record.method == Method::kEventsWarm ? graph_median(record, records) : std::nullopt;
    for (std::size_t i = 0; i < record.repetitions.size(); ++i) {
      json entry = entry_of(record, name, family, i);
      if (!label.empty()) entry["label"] = label;
      if (graph_us) entry["graph_us"] = *graph_us;
      document["benchmarks"].push_back(std::move(entry));
    }
  }
  return document;
}

}  // namespace fp8_sdpa::bench
