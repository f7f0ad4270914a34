#include "benchmarks/statistics/repetitions.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "benchmarks/command/text.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {

std::vector<Repetition> split_into_repetitions(int samples, int repetitions) {
  std::vector<Repetition> out;
  const int count = std::min(samples, repetitions);
  for (int i = 0, first = 0; i < count; ++i) {
    const int length = samples / count + (i < samples % count ? 1 : 0);
    out.push_back({first, length, {}});
    first += length;
  }
  return out;
}

std::vector<double> samples_of(const std::vector<double>& series, const Repetition& repetition) {
  const auto first = series.begin() + repetition.first_sample;
  return {first, first + repetition.samples};
}

std::vector<double> repetition_medians(const std::vector<double>& series,
                                       const std::vector<Repetition>& repetitions) {
  std::vector<double> medians;
  for (const Repetition& repetition : repetitions) {
    medians.push_back(summarise(samples_of(series, repetition)).p50);
  }
  return medians;
}

std::optional<double> expected_clock(std::vector<double> clocks_mhz) {
  if (clocks_mhz.empty()) return std::nullopt;
  return summarise(std::move(clocks_mhz)).p50;
}

std::optional<bool> below_expected_clock(const Repetition& repetition,
                                         const std::optional<double>& expected_mhz) {
  const std::optional<int>& clock = repetition.clocks.sm_clock_mhz;
  if (!clock || !expected_mhz) return std::nullopt;
  return *clock < kClockShare * *expected_mhz;
}

int marked_samples(const std::vector<Repetition>& repetitions,
                   const std::optional<double>& expected_mhz) {
  int marked = 0;
  for (const Repetition& repetition : repetitions) {
    if (below_expected_clock(repetition, expected_mhz).value_or(false))
      marked += repetition.samples;
  }
  return marked;
}

std::vector<std::string> throttle_names(std::uint64_t reasons) {
  // nvml.h, "nvmlClocksEventReasons": from bit 0 up.
  constexpr std::array kNames = {"gpu_idle",
                                 "applications_clocks_setting",
                                 "sw_power_cap",
                                 "hw_slowdown",
                                 "sync_boost",
                                 "sw_thermal_slowdown",
                                 "hw_thermal_slowdown",
                                 "hw_power_brake_slowdown",
                                 "display_clock_setting"};
  constexpr std::size_t kBits = 64;
  std::vector<std::string> names;
  for (std::size_t bit = 0; bit < kBits; ++bit) {
    if ((reasons >> bit & 1U) == 0) continue;
    names.push_back(bit < kNames.size() ? kNames[bit] : "bit_" + std::to_string(bit));
  }
  return names;
}

std::string slow_run_note(const std::optional<double>& expected_mhz,
                          const std::optional<int>& max_mhz) {
  if (!expected_mhz || !max_mhz || *expected_mhz >= kClockShare * *max_mhz) return "";
  return format("the run's median SM clock, %.0f MHz, is below %.0f %% of the device's %d MHz",
                *expected_mhz, 100 * kClockShare, *max_mhz);
}

}  // namespace fp8_sdpa::bench
