// Which variant the library takes when the caller names none.
#pragma once

#include <vector>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::detail {

/// In this order: the variant of the toggles, if this build was configured with some and it serves
/// the problem; on sm_90, of the variants that serve it, the one that is predicted to be fastest
/// (VariantImpl::predicted_us); else sm80_mma, the fastest measured that older devices have; else
/// the first that serves the problem. If none does, why the first one asked does not. Variants that
/// always need a workspace are passed over if there is none. Where rows must be batch-invariant,
/// the choice is, too: predictions are for long sequences that fill the device.
Result<const Variant*> choose(const Problem& problem, const Device& device, bool toggles_chosen,
                              const PlanOptions& options = {});

/// A variant that serves a problem, and how long a launch is predicted to take.
struct Prediction {
  const Variant* variant;
  double us;
};

/// Of every variant that serves the problem on that device and has a prediction, the fastest first;
/// equal ones as the table has them.
std::vector<Prediction> predictions(const Problem& problem, const Device& device,
                                    const PlanOptions& options);

/// plan() and forward() in one call on that device, without a workspace.
Status forward_at_once(const Problem& problem, const Device& device, CUstream_st* stream);

}  // namespace fp8_sdpa::detail
