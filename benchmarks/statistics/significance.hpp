// When a case counts as faster or slower: its medians must lie apart by more than a floor, and a
// rank test, corrected for the number of cases, must call that more than chance. Either alone
// raises false alarms: the floor on noisy cases, the test on differences that nobody would notice.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Repetitions that each side of a case needs: nine against nine, all of one side faster, have a p
/// of 4e-5, which stands in a thousand cases.
inline constexpr std::size_t kMinRepetitions = 9;

/// The rule of a verdict.
struct SignificanceRule {
  double min_effect = 0.02;  ///< of the medians' ratio: below 1 - this, either way, they differ
  double alpha = 0.05;       ///< for one false alarm or more among all cases
};

enum class CaseVerdict : std::uint8_t { kSame, kFaster, kSlower };
const char* name_of(CaseVerdict verdict);

/// One statistic of two series: a value for each repetition.
struct Case {
  std::vector<double> old_times;
  std::vector<double> new_times;
};

/// What is said of a case.
struct CaseResult {
  double speedup = 1;  ///< median of old / median of new
  double p = 1;
  double adjusted_p = 1;  ///< by Holm, among all cases
  CaseVerdict verdict = CaseVerdict::kSame;
  /// The verdict of the test alone, without the floor.
  bool significant = false;
};

/// Judges all cases together. kInvalidArgument where a time is NaN or a side has fewer than
/// kMinRepetitions.
Result<std::vector<CaseResult>> judge_cases(const std::vector<Case>& cases,
                                            const SignificanceRule& rule);

}  // namespace fp8_sdpa::bench
