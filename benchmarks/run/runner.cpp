#include "benchmarks/run/runner.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "benchmarks/measure/phase.hpp"
#include "benchmarks/measure/timing.hpp"
#include "benchmarks/measure/workload.hpp"
#include "benchmarks/run/host_memory.hpp"
#include "benchmarks/run/run_report.hpp"
#include "dispatch/choose.hpp"
#include "reference/formats/text.hpp"
#include "reference/inputs/qkv.hpp"
#include "reference/judge/check.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::CaseData;
using CasePointer = std::shared_ptr<const CaseData>;

bool is_declined(const std::vector<Declined>& declined, const std::string& shape,
                 const Variant& variant) {
  return std::any_of(declined.begin(), declined.end(),
                     [&](const Declined& d) { return d.shape == shape && d.variant == &variant; });
}

constexpr const char* kQkvShape = "qkv";  ///< the name of a file's tensors

/// The options of three names with commas between; those that are the default in any case.
Result<reference::QkvOptions> named_tensors(const std::string& names) {
  reference::QkvOptions options;
  options.ignore_case = names == options.q + "," + options.k + "," + options.v;
  const std::vector<std::string> parts = split_list(names);
  if (parts.size() != 3) {
    return invalid_argument("--qkv-names " + reference::one_line(names) +
                            ": expected three names of tensors, Q's, K's and V's");
  }
  options.q = parts[0];
  options.k = parts[1];
  options.v = parts[2];
  return options;
}

/// "; they serve head_dim 64": of those where a variant would serve the case.
std::string served_instead(PendingCase pending, const std::vector<const Variant*>& variants,
                           const Device& device) {
  std::string served;
  for (const int head_dim : {64, 128, 256}) {
    pending.shape.head_dim = head_dim;
    const Problem problem = pending.problem();
    const auto serves = [&](const Variant* variant) {
      return variant->supports(problem, device).ok();
    };
    if (std::any_of(variants.begin(), variants.end(), serves)) {
      served += (served.empty() ? "; they serve head_dim " : ", ") + std::to_string(head_dim);
    }
  }
  return served;
}

/// Whether the tensors can be quantised in that way.
Status check_way(const QkvSource& source, const reference::QuantisingWay& way) {
  if (way == reference::QuantisingWay{}) return {};
  const std::string file = reference::one_line(source.file);
  if (source.has_codes) {
    return invalid_argument("--qkv-rotate, --qkv-smooth and --qkv-blocks: " + file +
                            " has codes, which are quantised already; give it what they were made "
                            "of");
  }
  const bool finite = source.infinite == decltype(source.infinite){};
  if (finite || (!way.rotate && !way.smooth)) return {};
  return invalid_argument("--qkv-rotate and --qkv-smooth: " + file +
                          " has infinities, of which these options make other infinities and NaN; "
                          "give it finite tensors");
}

/// Gives each case its variants: those of the request, and plan()'s own choice where it is asked
/// for; that alone where nobody asked for variants and the usual ones know no descales of blocks.
Status add_variants(const RunRequest& request, bool asked, std::vector<PendingCase>& cases) {
  for (PendingCase& pending : cases) {
    const bool choose_alone = !asked && pending.granularity == Granularity::kBlock;
    if (!choose_alone) pending.variants = request.variants;
    if (!request.automatic && !choose_alone) continue;
    const auto chosen = detail::choose(pending.problem(), request.choice.device, toggles_chosen());
    if (!chosen.ok()) {
      std::vector<const Variant*> all;
      for (const Variant& variant : variants()) all.push_back(&variant);
      return {chosen.status().code(), "shape " + pending.shape.name + ": " +
                                          chosen.status().message() +
                                          served_instead(pending, all, request.choice.device)};
    }
    const auto there = std::find(pending.variants.begin(), pending.variants.end(), *chosen);
    if (there == pending.variants.end()) pending.variants.push_back(*chosen);
  }
  return {};
}

/// Output bits that passed every gate, of the first seed of each (shape, variant).
using JudgedOutputs = std::map<std::pair<std::string, std::string>, std::vector<std::uint16_t>>;

Result<CasePointer> make_case(const PendingCase& pending) {
  const Phase phase(kPhaseMakeCase);
  return pending.make();
}

Result<CorrectnessRecord> judge(const Variant& variant, const CaseData& data,
                                const RunRequest& request) {
  const Phase phase(kPhaseGates);
  auto result = reference::check(variant, data, request.choice.device, request.config.tolerances);
  if (result.ok()) return CorrectnessRecord{data.shape, data.dtype, std::move(*result)};
  if (is_kernel_error(result.status())) return error_record(data, variant, result.status());
  return result.status();
}

Status time_case(const PendingCase& pending, const RunRequest& request, const JudgedOutputs& judged,
                 const Output& output, RunResults& results) {
  std::vector<TimedVariant> passed;
  std::string names;
  for (const Variant* variant : pending.variants) {
    const auto found = judged.find({pending.shape.name, std::string(variant->name)});
    if (found == judged.end()) continue;
    passed.push_back({variant, &found->second});
    names += (names.empty() ? "" : ",") + std::string(variant->name);
  }
  if (passed.empty()) return {};
  output.progress("timing " + names + " on " + pending.shape.name);
  const auto data = make_case(pending);
  if (!data.ok()) return data.status();
  auto timed = time_variants(
      std::move(passed), **data, request.choice.device,
      {request.config.timing.warmup_iters, request.timed_iters, request.max_timed_iters});
  if (!timed.ok()) return timed.status();
  for (const auto& [variant, status] : timed->failed) {
    CorrectnessRecord failed = error_record(**data, *variant, status);
    output.line(correctness_line(failed));
    output.line("  " + failed.result.failure());
    results.correctness.push_back(std::move(failed));
  }
  for (PerfRecord& record : timed->records) {
    if (record.method == Method::kEventsWarm) output.line(perf_line(record));
    results.perf.push_back(std::move(record));
  }
  return {};
}

}  // namespace

Problem PendingCase::problem() const {
  Problem problem = problem_of(shape, dtype);
  problem.descales.granularity = granularity;
  return problem;
}

CorrectnessRecord error_record(const CaseData& data, const Variant& variant, const Status& status) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kAllOfThem = 100;  // percent
  CorrectnessRecord record{data.shape, data.dtype, {}};
  record.result.shape = data.shape.name;
  record.result.seed = data.seed;
  record.result.variant = variant.name;
  for (reference::Metrics* metrics : {&record.result.quantised, &record.result.kernel}) {
    metrics->max_abs_err = metrics->mean_abs_err = metrics->max_rel_err = kInfinity;
    metrics->rel_l2 = kInfinity;
    metrics->pct_bad = kAllOfThem;
  }
  reference::GateResult executed;
  executed.name = "executed";
  executed.detail = status.message();
  record.result.gates = {executed};
  return record;
}

Result<std::vector<PendingCase>> pending_cases(const RunRequest& request,
                                               const RunnerOptions& options) {
  std::vector<PendingCase> cases;
  if (!options.qkv.empty()) {
    auto named = named_tensors(options.qkv_names);
    if (!named.ok()) return named.status();
    reference::QkvOptions qkv_options = std::move(*named);
    if (options.qkv_layout == "bshd") {
      qkv_options.layout = reference::QkvLayout::kSequenceMajor;
    }
    auto tensors = reference::load_qkv(options.qkv, qkv_options);
    if (!tensors.ok()) return tensors.status();
    const Mask mask = options.qkv_mask == "causal" ? Mask::kCausal : Mask::kNone;
    tensors->sizes.mask = mask;
    if (options.qkv_scale > 0) tensors->softmax_scale = static_cast<float>(options.qkv_scale);
    auto source = std::make_shared<const QkvSource>(
        describe(*tensors, options.qkv, options.qkv_layout, options.qkv_way));
    if (Status s = check_way(*source, options.qkv_way); !s.ok()) return s;
    if (Status s = check_host_memory(reference::shape_of(kQkvShape, source->sizes)); !s.ok())
      return s;
    auto data =
        reference::make_case(std::move(*tensors), kQkvShape, mask, Dtype::kE4M3, options.qkv_way);
    if (!data.ok()) return data.status();
    cases.push_back({(*data)->shape, (*data)->seed,
                     [made = *data]() -> Result<CasePointer> { return made; }, source});
    cases.back().dtype = (*data)->dtype;
    if (source->way.blocks) cases.back().granularity = Granularity::kBlock;
    if (source->way.smooth) {
      cases.back().lse_of_means = reference::lse_of_means(**data, source->way.rotate);
    }
  }
  for (const reference::Shape& shape : request.shapes) {
    for (const std::uint64_t seed : request.seeds) {
      cases.push_back({shape, seed, [shape, seed]() -> Result<CasePointer> {
                         return reference::make_case(shape, seed);
                       }});
    }
  }
  if (Status s = add_variants(request, !options.variants.empty(), cases); !s.ok()) return s;
  return cases;
}

Result<std::vector<Declined>> declined_pairs(const RunRequest& request,
                                             const std::vector<PendingCase>& cases) {
  std::vector<Declined> declined;
  std::string last_shape;
  for (const PendingCase& pending : cases) {
    if (std::exchange(last_shape, pending.shape.name) == pending.shape.name) continue;
    const Problem problem = pending.problem();
    std::size_t served = 0;
    Status reason;
    for (const Variant* variant : pending.variants) {
      const Status status = variant->supports(problem, request.choice.device);
      if (status.ok()) {
        ++served;
      } else {
        declined.push_back({pending.shape.name, variant, status.message()});
        reason = status;
      }
    }
    if (served == 0) {
      return Status{reason.code(),
                    "shape " + pending.shape.name +
                        ": no chosen variant serves it: " + reason.message() +
                        served_instead(pending, pending.variants, request.choice.device)};
    }
  }
  return declined;
}

Result<RunResults> run_cases(const RunRequest& request, const std::vector<PendingCase>& cases,
                             const std::vector<Declined>& declined, const Output& output) {
  RunResults results;
  JudgedOutputs judged;
  std::map<std::pair<std::string, std::string>, bool> passed;
  std::size_t number = 0;
  for (const PendingCase& pending : cases) {
    const std::string label = "[" + std::to_string(++number) + "/" + std::to_string(cases.size()) +
                              "] " + pending.shape.name + " seed=" + std::to_string(pending.seed);
    output.progress(label + ": inputs and references");
    auto data = make_case(pending);
    if (!data.ok()) return data.status();
    for (const Variant* variant : pending.variants) {
      if (is_declined(declined, pending.shape.name, *variant)) continue;
      output.progress(label + ": " + std::string(variant->name));
      auto record = judge(*variant, **data, request);
      if (!record.ok()) return record.status();
      record->source = pending.source;
      output.line(correctness_line(*record));
      if (!record->result.pass) output.line("  " + record->result.failure());
      const std::pair key(pending.shape.name, std::string(variant->name));
      passed.try_emplace(key, true).first->second &= record->result.pass;
      judged.try_emplace(key, record->result.output);
      for (std::size_t i = 0; i < pending.lse_of_means.size(); ++i) {
        if (i < record->result.log_sum_exp.size()) {
          record->result.log_sum_exp[i] += pending.lse_of_means[i];
        }
      }
      if (pending.source == nullptr) {  // nobody will write them
        record->result.output.clear();
        record->result.log_sum_exp.clear();
      }
      results.correctness.push_back(std::move(*record));
    }
  }
  std::erase_if(judged, [&](const auto& entry) { return !passed.at(entry.first); });
  std::string last_shape;
  for (const PendingCase& pending : cases) {
    const bool first_seed = std::exchange(last_shape, pending.shape.name) != pending.shape.name;
    if (!request.performance || !first_seed) continue;
    if (Status status = time_case(pending, request, judged, output, results); !status.ok()) {
      return status;
    }
  }
  results.all_pass = !results.correctness.empty() &&
                     std::all_of(results.correctness.begin(), results.correctness.end(),
                                 [](const CorrectnessRecord& r) { return r.result.pass; });
  return results;
}

}  // namespace fp8_sdpa::bench
