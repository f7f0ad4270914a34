#include <algorithm>
#include <utility>

#include "benchmarks/measure/timing.hpp"
#include "benchmarks/peers/contest.hpp"
#include "benchmarks/peers/judged_run.hpp"
#include "benchmarks/run/runner.hpp"
#include "benchmarks/statistics/stats.hpp"
#include "benchmarks/sweep/cost_model.hpp"
#include "benchmarks/sweep/sweep.hpp"

#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime_api.h>
#endif

namespace fp8_sdpa::bench {
namespace {

/// The oracle's share of a sweep point: the sweep has many.
constexpr std::int64_t kScoresOfPlace = std::int64_t{1} << 23;

/// Free bytes of the current CUDA device.
std::int64_t free_device_bytes() {
  std::size_t free_bytes = 0;
#if FP8_SDPA_HAS_DEVICE
  std::size_t total = 0;
  if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) return 0;
#endif
  return static_cast<std::int64_t>(free_bytes);
}

/// The sweep at one of its points.
class Stop {
 public:
  Stop(const SweepPlan& plan, const Device& device, SweepResults& results)
      : plan_(plan), device_(device), results_(results) {}

  Status run(const SweepPoint& place) {
    const std::uint64_t seed = plan_.config.seeds.front();
    const auto sampled = sample_case(place.shape, seed, kScoresOfPlace);
    if (!sampled.ok()) return sampled.status();
    const std::int64_t free_before = free_device_bytes();
    std::vector<TimedVariant> passed;
    std::vector<JudgedRun> judged;
    {
      const auto workload = Workload::make(*sampled->whole, device_);
      if (!workload.ok()) return workload.status();
      if (Status s = judge_all(place, *workload, *sampled, judged, passed); !s.ok()) return s;
      device_bytes_ = free_before - free_device_bytes();
    }
    if (passed.empty()) return {};
    for (std::size_t i = 0; i < passed.size(); ++i) passed[i].judged = &judged[i].bits;
    TimingPlan timing;
    timing.warmup_iters = launches_for(place.shape, plan_.config.timing.warmup_iters);
    timing.timed_iters = timing.max_timed_iters = launches_for(place.shape, plan_.timed_iters);
    const auto timed = time_variants(passed, *sampled->whole, device_, timing);
    if (!timed.ok()) return timed.status();
    for (const auto& [variant, status] : timed->failed) {
      leave_out(place, *variant, status.message(), /*failed=*/true);
    }
    for (const TimedVariant& entry : passed) add_record(place, *entry.variant, timed->records);
    return {};
  }

 private:
  void leave_out(const SweepPoint& place, const Variant& variant, const std::string& reason,
                 bool failed) const {
    results_.left_out.push_back({place.shape.name, std::string(variant.name), reason});
    results_.pass = results_.pass && !failed;
  }

  Status judge_all(const SweepPoint& place, const Workload& workload, const SampledCase& sampled,
                   std::vector<JudgedRun>& judged, std::vector<TimedVariant>& passed) const {
    std::vector<const Variant*> variants = plan_.variants;
    if (variants.empty()) {
      const auto chosen = fp8_sdpa::plan(workload.problem(), device_);
      if (!chosen.ok()) return chosen.status();
      variants.push_back(&chosen->variant());
    }
    for (const Variant* variant : variants) {
      const auto plan = workload.plan_for(*variant);
      if (!plan.ok()) {
        leave_out(place, *variant, plan.status().message(), /*failed=*/false);
        continue;
      }
      auto run = run_and_judge(workload, *plan, sampled, formats_of(*variant), 1.0,
                               plan_.config.tolerances);
      if (!run.ok() && !is_kernel_error(run.status())) return run.status();
      if (!run.ok() || !run->result.pass) {
        leave_out(place, *variant, run.ok() ? run->result.failure() : run.status().message(),
                  /*failed=*/true);
        continue;
      }
      judged.push_back(std::move(*run));
      passed.push_back({variant, nullptr});
    }
    return {};
  }

  void add_record(const SweepPoint& place, const Variant& variant,
                  const std::vector<PerfRecord>& records) const {
    const auto p50 = [&](Method method) {
      const auto found = std::find_if(records.begin(), records.end(), [&](const PerfRecord& r) {
        return r.variant == variant.name && r.method == method;
      });
      return found == records.end() ? 0.0 : summarise(found->samples_us).p50;
    };
    SweepRecord record;
    record.level = place.level;
    record.shape = place.shape;
    record.variant = variant.name;
    record.tile_m = variant.resources.tile_m;
    record.tile_n = variant.resources.tile_n;
    record.steps = steps_of(place.shape, variant.resources, device_.sm_count);
    record.events_us = p50(Method::kEventsWarm);
    record.graph_us = p50(Method::kGraphWarm);
    record.device_bytes = std::max<std::int64_t>(device_bytes_, 0);
    if (record.graph_us > 0) results_.records.push_back(std::move(record));
  }

  const SweepPlan& plan_;
  const Device& device_;
  SweepResults& results_;
  std::int64_t device_bytes_ = 0;
};

}  // namespace

Result<SweepResults> run_sweep(const SweepPlan& plan, const Device& device) {
  SweepResults results;
  for (const SweepPoint& place : plan.places) {
    if (Status s = Stop(plan, device, results).run(place); !s.ok()) return s;
  }
  return results;
}

}  // namespace fp8_sdpa::bench
