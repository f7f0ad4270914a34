#include "dispatch/choose.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/sequences.hpp"
#include "dispatch/variant_impl.hpp"

namespace fp8_sdpa::detail {
namespace {

/// What the predictions are for: an H100 or H200 has 132. The host executor, whose speed nobody
/// asks about, chooses as they do.
constexpr int kPredictedSmVersion = 90;
constexpr int kHopperMultiprocessors = 132;
constexpr std::int64_t kLong = 8192;

const Variant* first_of(Family family, const std::vector<const Variant*>& serving) {
  for (const Variant* variant : serving) {
    if (variant->family == family) return variant;
  }
  return nullptr;
}

}  // namespace

std::vector<Prediction> predictions(const Problem& problem, const Device& device,
                                    const PlanOptions& options) {
  Problem predicted = problem;
  if (options.batch_invariant) {
    predicted.ragged.cu_seqlens_q = nullptr;  // as many queries each
    predicted.batch = kHopperMultiprocessors;
    predicted.seq_q = predicted.seq_kv = kLong;
    predicted.mask = Mask::kNone;
  }
  const int sm_count =
      device.backend == Backend::kDevice ? device.sm_count : kHopperMultiprocessors;
  std::vector<Prediction> result;
  for (const Variant& variant : variants()) {
    const VariantImpl& impl = *variant.impl;
    if (impl.predicted_us == nullptr || (options.no_workspace && impl.needs_workspace)) continue;
    if (!variant.supports(problem, device).ok()) continue;
    result.push_back({&variant, impl.predicted_us(predicted, sm_count, options)});
  }
  std::ranges::stable_sort(result, {}, &Prediction::us);
  return result;
}

Result<const Variant*> choose(const Problem& problem, const Device& device, bool toggles_chosen,
                              const PlanOptions& options) {
  // What is said where none serves: the first reason, but of ragged batches, caches and blocks that
  // of the last which knows them.
  const bool caches = attention::is_ragged_or_paged(problem);
  const bool blocks = problem.descales.granularity == Granularity::kBlock;
  Status first_reason;
  Status knowing_reason;
  const auto serves = [&](const Variant& variant) {
    const Status status = variant.supports(problem, device);
    if (!status.ok() && first_reason.ok()) first_reason = status;
    const bool knows = (!caches || variant.impl->serves_caches) &&
                       (!blocks || variant.impl->serves_blocks) && (caches || blocks);
    if (!status.ok() && knows) knowing_reason = status;
    return status.ok();
  };
  if (toggles_chosen) {
    const Result<const Variant*> configured = find_variant(stage_c_name(configured_toggles()));
    if (configured.ok() && serves(**configured)) return *configured;
  }
  if (first_reason.code() == StatusCode::kInvalidArgument) return first_reason;
  if (device.sm_version == kPredictedSmVersion) {
    const std::vector<Prediction> predicted = predictions(problem, device, options);
    if (!predicted.empty()) return predicted.front().variant;
  }
  std::vector<const Variant*> serving;
  for (const Variant& variant : variants()) {
    if (options.no_workspace && variant.impl->needs_workspace) continue;
    if (serves(variant)) serving.push_back(&variant);
    if (first_reason.code() == StatusCode::kInvalidArgument) return first_reason;
  }
  if (serving.empty()) {
    if (!knowing_reason.ok()) first_reason = knowing_reason;
    return Status{first_reason.code(), "no variant serves this problem: " + first_reason.message()};
  }
  const Variant* best = first_of(Family::kSm80, serving);
  return best != nullptr ? best : serving.front();
}

}  // namespace fp8_sdpa::detail
