// Faults of the rounding model: mistakes that no shipped kernel can make yet (masks, shared KV
// heads), or that are easier said than edited into a kernel.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/wrong/trials.hpp"

namespace fp8_sdpa::wrong {

struct ModelFault {
  std::string name;
  std::string what;
  bool fp8_p = false;  ///< judged as a kernel that rounds P to FP8
  std::function<Attended(const reference::CaseData&)> attend;
};

/// Every fault of the rounding model.
std::vector<ModelFault> model_faults();

/// The rounding model without a fault: every gate must pass it.
Attended attend_rightly(const reference::CaseData& data);

}  // namespace fp8_sdpa::wrong
