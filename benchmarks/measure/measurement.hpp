// The order of one measurement: warm-up, outputs looked at, repetitions until they are quiet,
// outputs looked at again. What it acts on is behind functions, so that tests can play a machine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "benchmarks/statistics/repetitions.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// `rounds` rounds, each of which has every index in [0, count) once, shuffled anew, so that a
/// drift of the machine (clocks, heat, neighbours) meets all variants alike. The same for the same
/// seed, on every machine.
std::vector<int> interleaved_order(int count, int rounds, std::uint64_t seed);

/// What is measured: some variants, by their index, on one machine.
struct Bench {
  int count = 0;
  std::function<Status(int index, int launches)> warm_up;
  /// One timed sample, in microseconds.
  std::function<Result<double>(int index)> sample_us;
  /// Makes the output unlike any result, so that a launch that writes nothing is seen.
  std::function<Status()> poison;
  /// Whether the output, as the last launch left it, is the one that this variant's gates judged.
  std::function<Status(int index)> check_output;
  /// The device's clocks now; each value may be missing.
  std::function<ClockReading()> read_clocks;
  /// Where it is there: called after each repetition, so that others can be interleaved with these.
  std::function<void(const Repetition&)> after_repetition;
};

/// How long to measure.
struct MeasurementPlan {
  int warmup_iters = 0;
  int min_samples = 0;  ///< of each variant
  int max_samples = 0;  ///< at most, where the relative standard error does not come down
  /// An untimed launch before each sample: for interleaved variants, whose code the others evict.
  bool warm_each = false;
  std::uint64_t seed = 0;  ///< of the order within rounds
};

/// Relative standard error of a series (over the medians of its repetitions, which unlike its
/// samples are nearly independent) that ends the sampling: a quarter of the smallest effect that is
/// asked about (compare.hpp).
inline constexpr double kTargetError = 0.005;

/// What came of it; or what went wrong, and of which variant.
struct Measured {
  std::vector<std::vector<double>> samples_us;  ///< of each variant
  std::vector<Repetition> repetitions;          ///< the same of all: they are interleaved
  Status status;
  int failed = -1;
};

/// Measures. The first min_samples rounds are kRepetitions repetitions; more of the same length
/// follow until every variant is quiet or has max_samples. A variant whose output is not the judged
/// one before the timing, at the end of the timing itself, or when it runs once more after it,
/// fails by its index.
Measured measure(const Bench& bench, const MeasurementPlan& plan);

}  // namespace fp8_sdpa::bench
