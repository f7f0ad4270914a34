// Whether two series of times differ by more than chance: a rank test, which asks nothing of the
// form of their distributions (times are skewed and have outliers), and a correction for asking it
// many times.
#pragma once

#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// The rank test's answer.
struct RankTest {
  double u = 0;        ///< pairs (x, y) with x > y; a tie counts a half
  double p = 1;        ///< two-sided
  bool exact = false;  ///< by the distribution itself, not by its normal approximation
};

/// Up to this many values on either side, without ties, the exact distribution of U is used.
inline constexpr std::size_t kExactRankTest = 20;

/// Two-sided Mann-Whitney U test (Mann and Whitney, "On a Test of Whether one of Two Random
/// Variables is Stochastically Larger than the Other", Ann. Math. Statist. 18, 1947: the recurrence
/// of its equation 1). With ties, or more values, the normal approximation with the correction for
/// ties (Lehmann, "Nonparametrics", 1975, section 1.4) and for continuity (a half towards the
/// mean). Where all values are equal p is 1. kInvalidArgument where a side is empty or holds a NaN.
Result<RankTest> mann_whitney(const std::vector<double>& x, const std::vector<double>& y);

/// Holm's step-down adjustment (Holm, "A Simple Sequentially Rejective Multiple Test Procedure",
/// Scand. J. Statist. 6, 1979): rejecting where the adjusted p is at most alpha keeps the
/// probability of one false rejection or more among all of them at alpha, whatever their
/// dependence. In the order of the arguments. kInvalidArgument where one is not in [0, 1].
Result<std::vector<double>> holm(const std::vector<double>& p_values);

}  // namespace fp8_sdpa::bench
