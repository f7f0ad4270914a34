#include "benchmarks/files/results.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/statistics/bootstrap.hpp"
#include "dispatch/toggles.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;
using reference::Shape;

/// The fields of a shape that both kinds of result have. H and S are the queries'.
json shape_fields(const Shape& shape) {
  return {
      {"shape", shape.name}, {"B", shape.batch},
      {"H", shape.heads_q},  {"H_kv", shape.heads_kv},
      {"S", shape.seq_q},    {"S_kv", shape.seq_kv},
      {"D", shape.head_dim}, {"mask", name_of(shape.mask)},
  };
}

json to_json(const PtxasEntry& entry, std::span<const Variant> table) {
  const auto variant = std::find_if(table.begin(), table.end(),
                                    [&](const Variant& v) { return v.name == entry.variant; });
  const std::size_t dynamic = variant == table.end() ? 0 : variant->resources.shared_bytes;
  return {
      {"kernel", entry.kernel},
      {"variant", entry.variant},
      {"arch", entry.arch},
      {"registers", entry.registers},
      {"smem_bytes", entry.static_smem_bytes + dynamic},
      {"static_smem_bytes", entry.static_smem_bytes},
      {"dynamic_smem_bytes", dynamic},
      {"spill_stores", entry.spill_stores},
      {"spill_loads", entry.spill_loads},
  };
}

json to_json(const CorrectnessRecord& record) {
  const reference::CaseResult& result = record.result;
  json out = shape_fields(record.shape);
  // These are not stated for every shape (reference::absolute_gates_apply).
  json gates = {
      {"max_abs_err_pass", nullptr}, {"mean_abs_err_pass", nullptr}, {"pct_bad_pass", nullptr}};
  for (const reference::GateResult& gate : result.gates) gates[gate.name + "_pass"] = gate.pass;
  out.update({
      {"seed", result.seed},
      {"variant", result.variant},
      {"dtype", name_of(record.dtype)},
      {"max_abs_err", result.quantised.max_abs_err},
      {"mean_abs_err", result.quantised.mean_abs_err},
      {"max_rel_err", result.quantised.max_rel_err},
      {"rel_l2", result.quantised.rel_l2},
      {"pct_bad", result.quantised.pct_bad},
      {"kernel_max_abs_err", result.kernel.max_abs_err},
      {"kernel_rel_l2", result.kernel.rel_l2},
      {"kernel_mean_abs_err", result.kernel.mean_abs_err},
      {"kernel_rmse", result.kernel.rmse},
      {"kernel_rel_rmse", result.kernel.rel_rmse},
      {"kernel_rel_l1", result.kernel.rel_l1},
      {"kernel_cosine", result.kernel.cosine},
      {"non_finite", result.quantised.non_finite},
      {"gates", std::move(gates)},
      {"pass", result.pass},
      {"failure", result.pass ? json() : json(result.failure())},
  });
  if (record.source != nullptr) out["tensors"] = to_json(*record.source);
  return out;
}

json to_json(const Repetition& repetition, const std::optional<double>& expected_mhz) {
  const auto& [sm_clock, reasons] = repetition.clocks;
  const auto below = below_expected_clock(repetition, expected_mhz);
  return {
      {"first_sample", repetition.first_sample},
      {"samples", repetition.samples},
      {"sm_clock_mhz", sm_clock ? json(*sm_clock) : json()},
      {"throttle_reasons", reasons ? json(throttle_names(*reasons)) : json()},
      {"below_expected_clock", below ? json(*below) : json()},
  };
}

/// The interval of the median, by whole repetitions: samples of one are alike.
json median_interval(const PerfRecord& record) {
  BootstrapOptions options;
  options.seed = record.seed;
  if (!record.repetitions.empty()) {
    options.block = static_cast<std::size_t>(record.repetitions.front().samples);
  }
  const auto interval = bootstrap_median_interval(record.samples_us, options);
  if (!interval.ok()) return nullptr;
  return {interval->low, interval->high};
}

json to_json(const PerfRecord& record, const std::optional<double>& expected_mhz) {
  constexpr double kMicroseconds = 1e6;
  const Summary summary = summarise(record.samples_us);
  json repetitions = json::array();
  for (const Repetition& repetition : record.repetitions) {
    repetitions.push_back(to_json(repetition, expected_mhz));
  }
  json out = shape_fields(record.shape);
  out.update({
      {"seed", record.seed},
      {"variant", record.variant},
      {"method", name_of(record.method)},
      {"warmup_iters", record.warmup_iters},
      {"timed_iters", record.samples_us.size()},
      {"p50_us", summary.p50},
      {"p90_us", summary.p90},
      {"mean_us", summary.mean},
      {"std_us", summary.std},
      {"min_us", summary.min},
      {"iters_per_sec", kMicroseconds / summary.mean},
      {"tflops", tflops(record.shape, summary.p50)},
      {"samples_us", record.samples_us},
      {"interleaved", record.interleaved},
      {"p50_interval_us", median_interval(record)},
      {"repetitions", std::move(repetitions)},
      {"marked_samples", marked_samples(record.repetitions, expected_mhz)},
  });
  if (record.lse) out["lse"] = *record.lse;
  return out;
}

}  // namespace

Result<RunInfo> describe_run(const Device& device) {
  RunInfo run;
  run.start = std::time(nullptr);
  run.backend = device.backend;
  run.build = this_build();
  if (run.backend == Backend::kDevice) {
    auto info = describe(device);
    if (!info.ok()) return info.status();
    run.device = std::move(*info);
  }
  return run;
}

json result_header(const RunInfo& run) {
  return {
      {"schema_version", kResultSchemaVersion},
      {"timestamp", iso_timestamp(run.start)},
      {"backend", name_of(run.backend)},
      {"git",
       {{"sha", run.build.git_sha},
        {"branch", run.build.git_branch},
        {"dirty", run.build.git_dirty}}},
      {"device", run.device ? to_json(*run.device) : json()},
  };
}

json build_meta(const RunInfo& run, const PtxasReport& ptxas, std::span<const Variant> table) {
  const BuildInfo& build = run.build;
  json kernels = json::array();
  for (const PtxasEntry& entry : ptxas.entries) kernels.push_back(to_json(entry, table));
  json out = result_header(run);
  out["build"] = {
      {"DEBUG_PRINT", build.debug_print},
      {"arch", build.cuda_archs},
      {"flags", build.flags},
      {"cuda_flags", build.cuda_flags},
      {"compiler", build.compiler},
      {"cuda_compiler", build.cuda_compiler},
      {"build_type", build.build_type},
      {"sanitizer", build.sanitizer},
      {"ptxas", std::move(kernels)},
      {"ptxas_note", ptxas.note},
  };
  for (const ToggleName& toggle : kToggleNames) {
    out["build"][toggle.variable] = build.toggles.*toggle.member;
  }
  return out;
}

json correctness_summary(const RunInfo& run, const std::vector<CorrectnessRecord>& records) {
  json out = result_header(run);
  out["results"] = json::array();
  for (const CorrectnessRecord& record : records) out["results"].push_back(to_json(record));
  out["all_pass"] =
      !records.empty() && std::all_of(records.begin(), records.end(),
                                      [](const CorrectnessRecord& r) { return r.result.pass; });
  return out;
}

json perf_baseline(const RunInfo& run, const std::vector<PerfRecord>& records) {
  json out = result_header(run);
  out["schema_version"] = kPerfSchemaVersion;
  const auto expected = expected_clock(records);
  out["expected_sm_clock_mhz"] = expected ? json(*expected) : json();
  out["results"] = json::array();
  for (const PerfRecord& record : records) out["results"].push_back(to_json(record, expected));
  return out;
}

Status write_results(ResultDirectory& directory, const RunInfo& run, const PtxasReport& ptxas,
                     const std::vector<CorrectnessRecord>& correctness,
                     const std::vector<PerfRecord>* perf) {
  Status s = directory.write(kBuildMetaFile, build_meta(run, ptxas, variants()));
  if (s.ok()) s = directory.write(kCorrectnessFile, correctness_summary(run, correctness));
  if (s.ok() && perf != nullptr) s = directory.write(kPerfFile, perf_baseline(run, *perf));
  return s;
}

}  // namespace fp8_sdpa::bench
