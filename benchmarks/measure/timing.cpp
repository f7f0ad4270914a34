#include "benchmarks/measure/timing.hpp"

#include <algorithm>
#include <utility>

#include "benchmarks/command/text.hpp"
#include "benchmarks/measure/measurement.hpp"
#include "benchmarks/measure/nvml.hpp"
#include "benchmarks/measure/roofline.hpp"
#include "benchmarks/measure/timer.hpp"
#include "benchmarks/measure/workload.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::CaseData;

/// A failure, and whose it is: the variant with that index, or the machine's.
struct Failure {
  Status status;
  int index = -1;
};

class Group {
 public:
  Group(const std::vector<TimedVariant>& variants, const CaseData& data, const Workload& workload,
        const TimingPlan& plan)
      : variants_(variants), data_(data), workload_(workload), plan_(plan) {}

  Failure set_up() {
    for (int i = 0; i < count(); ++i) {
      auto plan = workload_.plan_for(*at(i).variant);
      if (!plan.ok()) return {plan.status(), i};
      plans_.push_back(std::move(*plan));
    }
    return {};
  }

  /// Appends one record for each variant.
  Failure time(Method method, const Nvml* nvml, std::vector<PerfRecord>& records) const {
    std::vector<LaunchTimer> timers;
    for (int i = 0; i < count(); ++i) {
      auto timer = LaunchTimer::make(plans_[static_cast<std::size_t>(i)], method);
      if (!timer.ok()) return {timer.status(), i};
      timers.push_back(std::move(*timer));
    }
    MeasurementPlan plan;
    plan.warmup_iters = plan_.warmup_iters;
    plan.min_samples = plan_.timed_iters;
    plan.max_samples = plan_.max_timed_iters;
    if (method == Method::kGraphWarm && plan_.graph_iters > 0) {
      plan.min_samples = plan.max_samples = plan_.graph_iters;
    }
    // A graph of many launches warms itself up.
    plan.warm_each = count() > 1 && method != Method::kGraphWarm;
    plan.seed = data_.seed;
    Bench bench = bench_of(timers, nvml);
    if (plan_.after_repetition) {
      bench.after_repetition = [&](const Repetition& taken) {
        plan_.after_repetition(method, taken);
      };
    }
    auto measured = measure(bench, plan);
    if (!measured.status.ok()) return {measured.status, measured.failed};
    for (int i = 0; i < count(); ++i) {
      records.push_back({data_.shape, data_.seed, std::string(at(i).variant->name), method,
                         plan_.warmup_iters,
                         std::move(measured.samples_us[static_cast<std::size_t>(i)]), count() > 1,
                         measured.repetitions});
    }
    return {};
  }

 private:
  int count() const { return static_cast<int>(variants_.size()); }
  const TimedVariant& at(int index) const { return variants_[static_cast<std::size_t>(index)]; }

  Bench bench_of(std::vector<LaunchTimer>& timers, const Nvml* nvml) const {
    const auto timer = [&timers](int index) -> LaunchTimer& {
      return timers[static_cast<std::size_t>(index)];
    };
    Bench bench;
    bench.count = count();
    bench.warm_up = [timer](int index, int launches) { return timer(index).warm_up(launches); };
    bench.sample_us = [timer](int index) { return timer(index).sample_us(); };
    bench.poison = [this] { return workload_.poison(); };
    bench.check_output = [this](int index) { return compare_output(index); };
    bench.read_clocks = [nvml] { return nvml == nullptr ? ClockReading{} : nvml->read_clocks(); };
    return bench;
  }

  Status compare_output(int index) const {
    const auto output = workload_.output();
    if (!output.ok()) return output.status();
    const std::vector<std::uint16_t>& judged = *at(index).judged;
    if (!judged.empty() && judged.size() <= output->size() &&
        std::equal(judged.begin(), judged.end(), output->begin())) {
      return {};
    }
    return {StatusCode::kExecutorError,
            "the timed run's output differs from the one that the gates judged"};
  }

  const std::vector<TimedVariant>& variants_;
  const CaseData& data_;
  const Workload& workload_;
  const TimingPlan& plan_;
  std::vector<Plan> plans_;
};

Failure time_group(const std::vector<TimedVariant>& variants, const CaseData& data,
                   const Workload& workload, const TimingPlan& plan, const Nvml* nvml,
                   std::vector<PerfRecord>& records) {
  Group group(variants, data, workload, plan);
  if (Failure f = group.set_up(); !f.status.ok()) return f;
  for (const Method method : plan.methods) {
    if (Failure f = group.time(method, nvml, records); !f.status.ok()) return f;
  }
  return {};
}

}  // namespace

bool is_kernel_error(const Status& status) {
  return status.code() == StatusCode::kDeviceError || status.code() == StatusCode::kExecutorError;
}

void reject_above_roofline(const std::vector<TimedVariant>& variants, const Device& device,
                           TimingResults& results) {
  for (const TimedVariant& timed : variants) {
    const auto is_own = [&](const PerfRecord& r) { return r.variant == timed.variant->name; };
    for (const PerfRecord& record : results.records) {
      if (!is_own(record)) continue;
      if (Status status = check_roofline(record, device); !status.ok()) {
        results.failed.emplace_back(timed.variant, std::move(status));
        break;
      }
    }
    if (!results.failed.empty() && results.failed.back().first == timed.variant) {
      std::erase_if(results.records, is_own);
    }
  }
}

std::vector<std::string> clock_notes(const std::vector<PerfRecord>& records,
                                     const std::optional<int>& max_mhz) {
  if (records.empty()) return {};
  const auto expected = expected_clock(records);
  if (!expected) return {"no clocks of the samples: none is marked"};
  std::size_t samples = 0;
  int marked = 0;
  for (const PerfRecord& record : records) {
    samples += record.samples_us.size();
    marked += marked_samples(record.repetitions, expected);
  }
  std::vector<std::string> notes = {
      format("%d of %zu samples are marked: their SM clock was below %.0f %% of %.0f MHz", marked,
             samples, 100 * kClockShare, *expected)};
  const std::string slow = slow_run_note(expected, max_mhz);
  if (!slow.empty()) notes.push_back(slow);
  return notes;
}

Result<TimingResults> time_variants(std::vector<TimedVariant> variants, const CaseData& data,
                                    const Device& device, const TimingPlan& plan) {
  TimingResults results;
  const auto workload = Workload::make(data, device, plan.output, plan.lse);
  if (!workload.ok()) return workload.status();
  const auto nvml = Nvml::open(device);
  while (!variants.empty()) {
    results.records.clear();
    const Failure failure =
        time_group(variants, data, *workload, plan, nvml.ok() ? &*nvml : nullptr, results.records);
    if (failure.status.ok()) {
      reject_above_roofline(variants, device, results);
      return results;
    }
    if (!is_kernel_error(failure.status)) return failure.status;
    // The others are timed anew, without it.
    const auto culprit = variants.begin() + failure.index;
    results.failed.emplace_back(culprit->variant, failure.status);
    variants.erase(culprit);
  }
  results.records.clear();
  return results;
}

}  // namespace fp8_sdpa::bench
