#include "benchmarks/files/verdicts.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {

using nlohmann::json;

GateVerdicts verdicts_of(const json& correctness_summary) {
  GateVerdicts verdicts;
  for (const json& result : correctness_summary.at("results")) {
    GateVerdict& verdict = verdicts[{result.at("variant"), result.at("shape")}];
    ++verdict.judged;
    if (result.at("pass").get<bool>()) {
      ++verdict.passed;
    } else {
      const json& text = result.at("failure");
      const std::string line = text.is_string() ? reference::one_line(text.get<std::string>()) : "";
      verdict.failures.emplace_back(result.at("seed").dump(),
                                    line.empty() ? "no reason given" : line);
    }
    const auto keep_largest = [&](double& largest, const char* key) {
      const json& error = result.at(key);
      largest = std::max(
          largest, error.is_null() ? std::numeric_limits<double>::infinity() : error.get<double>());
    };
    keep_largest(verdict.max_abs_err, "max_abs_err");
    keep_largest(verdict.mean_abs_err, "mean_abs_err");
    keep_largest(verdict.rel_l2, "rel_l2");
    keep_largest(verdict.kernel_rel_l2, "kernel_rel_l2");
  }
  return verdicts;
}

}  // namespace fp8_sdpa::bench
