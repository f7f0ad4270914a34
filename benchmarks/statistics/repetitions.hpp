// A series of samples in repetitions: stretches of time, each with the clock that the device ran
// at. Neighbouring samples are alike (clocks and heat drift), so the repetitions, not the samples,
// are what a statistical test may count as witnesses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fp8_sdpa::bench {

/// Repetitions that a series is measured in, where it has as many samples.
inline constexpr int kRepetitions = 20;

/// Samples taken at less than this share of the expected clock are marked.
inline constexpr double kClockShare = 0.95;

/// What NVML said of the device at one moment. Empty: it was not there, or did not answer.
struct ClockReading {
  std::optional<int> sm_clock_mhz;
  std::optional<std::uint64_t> throttle_reasons;  ///< bits, named by throttle_names()
};

/// Samples [first_sample, first_sample + samples) of a series, and the clock at their end.
struct Repetition {
  int first_sample = 0;
  int samples = 0;
  ClockReading clocks;
};

/// `samples` in time's order as `repetitions` stretches (fewer where there are fewer samples),
/// whose lengths differ by one at most.
std::vector<Repetition> split_into_repetitions(int samples, int repetitions = kRepetitions);

/// The samples of one repetition.
std::vector<double> samples_of(const std::vector<double>& series, const Repetition& repetition);

/// The median of each repetition, in time's order.
std::vector<double> repetition_medians(const std::vector<double>& series,
                                       const std::vector<Repetition>& repetitions);

/// The clock that samples are expected at: the median of all known ones of a run. Not the device's
/// maximum: under its power limit a heavy kernel runs below that for good, at a clock of its own.
std::optional<double> expected_clock(std::vector<double> clocks_mhz);

/// Whether a repetition is marked: its clock is below kClockShare of the expected one. Empty where
/// either is not known.
std::optional<bool> below_expected_clock(const Repetition& repetition,
                                         const std::optional<double>& expected_mhz);

/// Samples in marked repetitions. 0 where no clock is known.
int marked_samples(const std::vector<Repetition>& repetitions,
                   const std::optional<double>& expected_mhz);

/// The set bits' names, as nvml.h has them (nvmlClocksEventReason...): "gpu_idle",
/// "sw_power_cap", "hw_thermal_slowdown"; "bit_N" of one that is not known.
std::vector<std::string> throttle_names(std::uint64_t reasons);

/// One line where a run as a whole was slowed down: its expected clock is below kClockShare of the
/// device's maximum. Marks alone would not show that. Empty otherwise, or where it is not known.
std::string slow_run_note(const std::optional<double>& expected_mhz,
                          const std::optional<int>& max_mhz);

}  // namespace fp8_sdpa::bench
