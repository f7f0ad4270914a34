#include "benchmarks/timing.hpp"

#include <algorithm>
#include <utility>

#include "benchmarks/interleave.hpp"
#include "benchmarks/phase.hpp"
#include "benchmarks/runner.hpp"
#include "benchmarks/timer.hpp"
#include "benchmarks/workload.hpp"

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
  Failure time(Method method, std::vector<PerfRecord>& records) const {
    std::vector<LaunchTimer> timers;
    for (int i = 0; i < count(); ++i) {
      const Phase phase(kPhaseWarmUp);
      auto timer = LaunchTimer::make(plans_[static_cast<std::size_t>(i)], method);
      if (!timer.ok()) return {timer.status(), i};
      if (Status s = timer->warm_up(plan_.warmup_iters); !s.ok()) return {s, i};
      timers.push_back(std::move(*timer));
    }
    if (Failure f = check_outputs(timers); !f.status.ok()) return f;
    // A graph of many launches warms itself up.
    const bool warm_each = count() > 1 && method != Method::kGraphWarm;
    int last = 0;
    auto taken = sample_interleaved(count(), plan_.timed_iters, data_.seed,
                                    [&](int index) -> Result<double> {
                                      last = index;
                                      LaunchTimer& timer = timers[static_cast<std::size_t>(index)];
                                      if (warm_each) {
                                        const Phase phase(kPhaseWarmUp);
                                        if (Status s = timer.warm_up(1); !s.ok()) return s;
                                      }
                                      const Phase phase(kPhaseTiming);
                                      return timer.sample_us();
                                    });
    if (!taken.status.ok()) return {taken.status, taken.failed};
    // What the timing itself left, before anything else writes O.
    if (Failure f = compare_output(last); !f.status.ok()) return f;
    if (Failure f = check_outputs(timers); !f.status.ok()) return f;
    for (int i = 0; i < count(); ++i) {
      records.push_back({data_.shape, data_.seed, std::string(at(i).variant->name), method,
                         plan_.warmup_iters,
                         std::move(taken.samples_us[static_cast<std::size_t>(i)]), count() > 1});
    }
    return {};
  }

 private:
  int count() const { return static_cast<int>(variants_.size()); }
  const TimedVariant& at(int index) const { return variants_[static_cast<std::size_t>(index)]; }

  Failure compare_output(int index) const {
    const auto output = workload_.output();
    if (!output.ok()) return {output.status(), index};
    const std::vector<std::uint16_t>& judged = *at(index).judged;
    if (!judged.empty() && judged.size() <= output->size() &&
        std::equal(judged.begin(), judged.end(), output->begin())) {
      return {};
    }
    return {{StatusCode::kExecutorError,
             "the timed run's output differs from the one that the gates judged"},
            index};
  }

  /// All variants write one O, so each runs anew, as it was timed, to be looked at.
  Failure check_outputs(std::vector<LaunchTimer>& timers) const {
    for (int i = 0; i < count(); ++i) {
      if (Status s = workload_.poison(); !s.ok()) return {s, i};
      const auto sample = timers[static_cast<std::size_t>(i)].sample_us();
      if (!sample.ok()) return {sample.status(), i};
      if (Failure f = compare_output(i); !f.status.ok()) return f;
    }
    return {};
  }

  const std::vector<TimedVariant>& variants_;
  const CaseData& data_;
  const Workload& workload_;
  const TimingPlan& plan_;
  std::vector<Plan> plans_;
};

Failure time_group(const std::vector<TimedVariant>& variants, const CaseData& data,
                   const Workload& workload, const TimingPlan& plan,
                   std::vector<PerfRecord>& records) {
  Group group(variants, data, workload, plan);
  if (Failure f = group.set_up(); !f.status.ok()) return f;
  for (const Method method : {Method::kEventsWarm, Method::kEventsCold, Method::kGraphWarm}) {
    if (Failure f = group.time(method, records); !f.status.ok()) return f;
  }
  return {};
}

}  // namespace

Result<TimingResults> time_variants(std::vector<TimedVariant> variants, const CaseData& data,
                                    const Device& device, const TimingPlan& plan) {
  TimingResults results;
  const auto workload = Workload::make(data, device);
  if (!workload.ok()) return workload.status();
  while (!variants.empty()) {
    results.records.clear();
    const Failure failure = time_group(variants, data, *workload, plan, results.records);
    if (failure.status.ok()) return results;
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
