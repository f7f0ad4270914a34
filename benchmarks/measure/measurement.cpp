#include "benchmarks/measure/measurement.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "benchmarks/measure/phase.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {

std::vector<int> interleaved_order(int count, int rounds, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> round(static_cast<std::size_t>(count));
  std::vector<int> order;
  order.reserve(round.size() * static_cast<std::size_t>(rounds));
  for (int r = 0; r < rounds; ++r) {
    std::iota(round.begin(), round.end(), 0);
    // Fisher and Yates by hand: the standard leaves std::shuffle's order to the library. The bias
    // of the remainder is 2^-64 * count.
    for (std::size_t i = round.size(); i > 1; --i) std::swap(round[i - 1], round[random() % i]);
    order.insert(order.end(), round.begin(), round.end());
  }
  return order;
}

namespace {

class Measurement {
 public:
  Measurement(const Bench& bench, const MeasurementPlan& plan) : bench_(bench), plan_(plan) {
    out_.samples_us.resize(static_cast<std::size_t>(bench.count));
  }

  Measured run() {
    static_cast<void>(warm_up_all(plan_.warmup_iters) && check_outputs() && take_samples() &&
                      check_last() && check_outputs());
    return std::move(out_);
  }

 private:
  bool fail(Status status, int index) {
    if (status.ok()) return true;
    out_.status = std::move(status);
    out_.failed = index;
    return false;
  }

  Status warm_up(int index, int launches) const {
    const Phase phase(kPhaseWarmUp);
    return bench_.warm_up(index, launches);
  }

  bool warm_up_all(int launches) {
    for (int i = 0; i < bench_.count; ++i) {
      if (!fail(warm_up(i, launches), i)) return false;
    }
    return true;
  }

  /// All variants write one output, so each runs anew, as it is timed, to be looked at.
  bool check_outputs() {
    for (int i = 0; i < bench_.count; ++i) {
      if (!fail(bench_.poison(), i)) return false;
      if (const auto sample = bench_.sample_us(i); !sample.ok()) return fail(sample.status(), i);
      if (!fail(bench_.check_output(i), i)) return false;
    }
    return true;
  }

  /// What the timing itself left, before anything else writes the output.
  bool check_last() { return last_ < 0 || fail(bench_.check_output(last_), last_); }

  bool take_samples() {
    const std::vector<Repetition> first = split_into_repetitions(plan_.min_samples);
    if (bench_.count == 0 || first.empty()) return true;
    for (const Repetition& repetition : first) {
      if (!take_repetition(repetition.samples)) return false;
    }
    const int length = first.front().samples;
    const StoppingRule rule = {.min_samples = first.size(),
                               .max_samples = static_cast<std::size_t>(plan_.max_samples / length),
                               .target = kTargetError};
    while (!all_quiet(rule)) {
      if (!take_repetition(length)) return false;
    }
    return true;
  }

  bool all_quiet(const StoppingRule& rule) const {
    return std::all_of(out_.samples_us.begin(), out_.samples_us.end(), [&](const auto& series) {
      return rule.enough(repetition_medians(series, out_.repetitions));
    });
  }

  bool take_repetition(int rounds) {
    // Reading the clocks, and whoever is interleaved, lets the device idle for a moment.
    if (!out_.repetitions.empty() && !warm_up_all(1)) return false;
    constexpr int kWordBits = 32;
    const std::uint64_t number = out_.repetitions.size();
    const auto before = static_cast<int>(out_.samples_us.front().size());
    for (const int index :
         interleaved_order(bench_.count, rounds, plan_.seed ^ (number << kWordBits))) {
      last_ = index;
      if (plan_.warm_each && !fail(warm_up(index, 1), index)) return false;
      const Phase phase(kPhaseTiming);
      const auto sample = bench_.sample_us(index);
      if (!sample.ok()) return fail(sample.status(), index);
      out_.samples_us[static_cast<std::size_t>(index)].push_back(*sample);
    }
    out_.repetitions.push_back({before, rounds, bench_.read_clocks()});
    if (bench_.after_repetition) bench_.after_repetition(out_.repetitions.back());
    return true;
  }

  const Bench& bench_;
  const MeasurementPlan& plan_;
  Measured out_;
  int last_ = -1;
};

}  // namespace

Measured measure(const Bench& bench, const MeasurementPlan& plan) {
  return Measurement(bench, plan).run();
}

}  // namespace fp8_sdpa::bench
