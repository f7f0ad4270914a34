#include "dispatch/choose.hpp"

#include <string>
#include <vector>

#include "dispatch/variant_impl.hpp"

namespace fp8_sdpa::detail {
namespace {

/// What the predictions are for: an H100 or H200 has 132. The host executor, whose speed nobody
/// asks about, chooses as they do.
constexpr int kPredictedSmVersion = 90;
constexpr int kHopperMultiprocessors = 132;

const Variant* fastest(const std::vector<const Variant*>& serving, Problem problem,
                       const Device& device, const PlanOptions& options) {
  if (options.batch_invariant) problem.batch = kHopperMultiprocessors;
  const int sm_count =
      device.backend == Backend::kDevice ? device.sm_count : kHopperMultiprocessors;
  const Variant* best = nullptr;
  double best_us = 0.0;
  for (const Variant* variant : serving) {
    if (variant->impl->predicted_us == nullptr) continue;
    const double us = variant->impl->predicted_us(problem, sm_count, options);
    if (best == nullptr || us < best_us) {
      best = variant;
      best_us = us;
    }
  }
  return best;
}

const Variant* first_of(Family family, const std::vector<const Variant*>& serving) {
  for (const Variant* variant : serving) {
    if (variant->family == family) return variant;
  }
  return nullptr;
}

}  // namespace

Result<const Variant*> choose(const Problem& problem, const Device& device, bool toggles_chosen,
                              const PlanOptions& options) {
  Status first_reason;
  const auto serves = [&](const Variant& variant) {
    const Status status = variant.supports(problem, device);
    if (!status.ok() && first_reason.ok()) first_reason = status;
    return status.ok();
  };
  if (toggles_chosen) {
    const Result<const Variant*> configured = find_variant(stage_c_name(configured_toggles()));
    if (configured.ok() && serves(**configured)) return *configured;
  }
  if (first_reason.code() == StatusCode::kInvalidArgument) return first_reason;
  std::vector<const Variant*> serving;
  for (const Variant& variant : variants()) {
    if (options.no_workspace && variant.impl->needs_workspace) continue;
    if (serves(variant)) serving.push_back(&variant);
    if (first_reason.code() == StatusCode::kInvalidArgument) return first_reason;
  }
  if (serving.empty()) {
    return Status{first_reason.code(), "no variant serves this problem: " + first_reason.message()};
  }
  const Variant* best = device.sm_version == kPredictedSmVersion
                            ? fastest(serving, problem, device, options)
                            : first_of(Family::kSm80, serving);
  return best != nullptr ? best : serving.front();
}

}  // namespace fp8_sdpa::detail
