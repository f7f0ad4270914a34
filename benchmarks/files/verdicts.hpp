// What the gates said, read back from correctness_summary.json.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace fp8_sdpa::bench {

/// Of the seeds of one (variant, shape).
struct GateVerdict {
  int judged = 0;
  int passed = 0;
  double max_abs_err = 0;    ///< the largest over the seeds, as all of these;
  double mean_abs_err = 0;   ///< infinite where one was not finite
  double rel_l2 = 0;         ///< against the unquantised inputs
  double kernel_rel_l2 = 0;  ///< against the dequantised inputs: the kernel's own
  std::vector<std::pair<std::string, std::string>> failures;  ///< seed, and what failed in one line

  bool pass() const { return judged > 0 && passed == judged; }
  /// What failed first; empty where nothing did.
  std::string failure() const { return failures.empty() ? "" : failures.front().second; }
};

using GateVerdicts = std::map<std::pair<std::string, std::string>, GateVerdict>;

/// By variant and shape, of a document that has the form of its schema.
GateVerdicts verdicts_of(const nlohmann::json& correctness_summary);

}  // namespace fp8_sdpa::bench
