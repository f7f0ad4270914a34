#include "benchmarks/statistics/significance.hpp"

#include <algorithm>

#include "benchmarks/command/text.hpp"
#include "benchmarks/statistics/rank_test.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {

const char* name_of(CaseVerdict verdict) {
  switch (verdict) {
    case CaseVerdict::kSame: return "same";
    case CaseVerdict::kFaster: return "faster";
    case CaseVerdict::kSlower: return "slower";
  }
  return "unknown";
}

Result<std::vector<CaseResult>> judge_cases(const std::vector<Case>& cases,
                                            const SignificanceRule& rule) {
  std::vector<CaseResult> results;
  std::vector<double> p_values;
  for (const Case& each : cases) {
    const std::size_t fewest = std::min(each.old_times.size(), each.new_times.size());
    if (fewest < kMinRepetitions) {
      return invalid_argument(
          format("%zu repetitions, expected at least %zu of each side", fewest, kMinRepetitions));
    }
    const auto test = mann_whitney(each.old_times, each.new_times);
    if (!test.ok()) return test.status();
    CaseResult result;
    result.speedup = summarise(each.old_times).p50 / summarise(each.new_times).p50;
    result.p = test->p;
    results.push_back(result);
    p_values.push_back(test->p);
  }
  const auto adjusted = holm(p_values);
  if (!adjusted.ok()) return adjusted.status();
  for (std::size_t i = 0; i < results.size(); ++i) {
    CaseResult& result = results[i];
    result.adjusted_p = (*adjusted)[i];
    result.significant = result.adjusted_p <= rule.alpha;
    if (!result.significant) continue;
    if (result.speedup < 1 - rule.min_effect) result.verdict = CaseVerdict::kSlower;
    if (1 / result.speedup < 1 - rule.min_effect) result.verdict = CaseVerdict::kFaster;
  }
  return results;
}

}  // namespace fp8_sdpa::bench
