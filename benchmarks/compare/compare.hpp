// Compares two files of measured times: an old one against a new one, or two variants of one run.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/files/perf_file.hpp"
#include "benchmarks/statistics/significance.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Every variant, each against itself.
inline constexpr const char* kAllVariants = "all";

/// Below 1 - this a speed-up is worth a word: medians of one kernel differ by less between two
/// runs. The default of SignificanceRule::min_effect.
inline constexpr double kRegressionNoise = 0.02;

/// What is asked of a comparison.
struct CompareOptions {
  std::string variant_old = kAllVariants;  ///< or some, comma-separated, each against variant_new
  std::string variant_new = kAllVariants;
  std::vector<std::string> shapes;  ///< empty: all, and both files must have the same
  bool common_shapes = false;       ///< or need not: those that one lacks are left out, by name
  std::string method = "events_l2_warm";  ///< the one that is judged; the others are shown
  std::vector<std::string> by = {"p50"};  ///< of p50, p90, mean: each must reach min_speedup
  double min_speedup = 1.10;
  SignificanceRule rule = {.min_effect = kRegressionNoise};  ///< of faster, slower and same
};

/// Old time / new time of three statistics.
struct SpeedUps {
  double p50 = 0;
  double p90 = 0;
  double mean = 0;
};

/// What the repetitions say of one statistic.
struct StatisticResult {
  std::string statistic;  ///< p50, p90 or mean
  CaseResult result;
};

struct ComparedSeries {
  const PerfSeries* old_series;
  const PerfSeries* new_series;
  SpeedUps speedup;
  bool judged;                           ///< by CompareOptions::method
  std::vector<StatisticResult> results;  ///< one for each of CompareOptions::by, where judged
};

/// One variant against another (or against itself, in the other file).
struct ComparedPair {
  std::string variant_old;
  std::string variant_new;
  std::vector<ComparedSeries> series;
  std::vector<std::string> left_out;  ///< shapes that one of them lacks
  SpeedUps arithmetic;                ///< means over the judged series
  SpeedUps geometric;
  bool gates_pass = false;
};

struct Comparison {
  std::vector<ComparedPair> pairs;
  std::vector<std::string> failures;  ///< why the verdict is no; empty: yes
};

/// Compares. Points into both files. kInvalidArgument, in one line with the file, where they cannot
/// be compared: another device, backend, schema version, shape or clock, a variant or shape that is
/// missing, too few repetitions (comparable.hpp).
Result<Comparison> compare(const PerfFile& old_file, const PerfFile& new_file,
                           const CompareOptions& options);

/// COMPARE.md.
std::string to_markdown(const Comparison& comparison, const PerfFile& old_file,
                        const PerfFile& new_file, const CompareOptions& options);

/// exp of the mean of the logarithms. NaN where there are none.
double geometric_mean(const std::vector<double>& values);

}  // namespace fp8_sdpa::bench
