#include "benchmarks/run/gated_cases.hpp"

#include "benchmarks/run/host_memory.hpp"
#include "reference/judge/check.hpp"

namespace fp8_sdpa::bench {
namespace {

Status compare_bits(const Result<std::vector<std::uint16_t>>& got,
                    const std::vector<std::uint16_t>& judged) {
  if (!got.ok()) return got.status();
  if (*got == judged) return {};
  return {StatusCode::kExecutorError,
          "the timed run's output differs from the one that the gates judged"};
}

}  // namespace

Status GatedLaunch::check_fresh_run() const { return compare_bits(workload->run(plan), judged); }

Status GatedLaunch::check_output() const { return compare_bits(workload->output(), judged); }

Status GatedCases::load(const reference::Shape& shape, const Variant& variant) {
  const bool is_there = data_ != nullptr && data_->shape.name == shape.name &&
                        data_->dtype == variant.codes() && values_ == variant.values();
  if (is_there) return {};
  if (Status s = check_host_memory(shape); !s.ok()) return s;
  data_ = reference::make_case(shape, config_.seeds.front(), variant.codes());
  values_ = variant.values();
  auto workload = Workload::make(*data_, device_, Dtype::kHalf, {}, values_);
  if (!workload.ok()) {
    data_ = nullptr;
    return workload.status();
  }
  workload_ = std::make_shared<const Workload>(std::move(*workload));
  return {};
}

GatedCases::Verdict GatedCases::judge(const Variant& variant) const {
  auto result = reference::check(variant, *data_, device_, config_.tolerances);
  if (!result.ok()) return {result.status(), {}};
  if (!result->pass) {
    return {{StatusCode::kExecutorError, std::string(variant.name) + " on " + data_->shape.name +
                                             " is not timed: " + result->failure()},
            {}};
  }
  return {{}, std::move(result->output)};
}

Result<GatedLaunch> GatedCases::launch(const Variant& variant, const reference::Shape& shape) {
  if (Status status = load(shape, variant); !status.ok()) {
    any_failed_ = true;
    return status;
  }
  const std::pair key(std::string(variant.name), shape.name);
  auto verdict = verdicts_.find(key);
  if (verdict == verdicts_.end()) verdict = verdicts_.emplace(key, judge(variant)).first;
  if (!verdict->second.status.ok()) {
    any_failed_ = true;
    return verdict->second.status;
  }
  auto plan = workload_->plan_for(variant);
  if (!plan.ok()) return plan.status();
  return GatedLaunch{workload_, *plan, verdict->second.output};
}

}  // namespace fp8_sdpa::bench
