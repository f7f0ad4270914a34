#include "benchmarks/compare/aa.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "benchmarks/command/text.hpp"
#include "benchmarks/compare/comparable.hpp"
#include "reference/formats/text.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::one_line;

Result<std::vector<const PerfSeries*>> series_of(const PerfFile& file, const std::string& method) {
  std::vector<const PerfSeries*> out;
  for (const PerfSeries& series : file.series) {
    if (series.method != method || !series.gate_failure.empty()) continue;
    if (series.repetitions.size() < 2 * kMinRepetitions) {
      return refused(file,
                     format("%s on %s by %s has %zu repetitions, expected at least %zu, to cut "
                            "them in two",
                            series.variant.c_str(), series.shape.c_str(), method.c_str(),
                            series.repetitions.size(), 2 * kMinRepetitions));
    }
    out.push_back(&series);
  }
  if (out.empty()) {
    return refused(file, "no series by " + one_line(method) + " that passed its gates");
  }
  return out;
}

/// 0 .. count - 1 in an order that is the same for the same seed and split, whoever asks.
std::vector<std::size_t> random_order(std::size_t count, std::uint64_t seed, std::uint32_t split) {
  constexpr int kWordBits = 32;
  const reference::PhiloxStream words(seed, split);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[std::uint64_t{words.word(i)} * i >> kWordBits]);
  }
  return order;
}

/// The first half of an order against the second.
Case cut(const PerfSeries& series, const std::vector<std::size_t>& order) {
  Case out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    (i < order.size() / 2 ? out.old_times : out.new_times)
        .push_back(series.repetitions[order[i]].times.p50);
  }
  return out;
}

}  // namespace

Result<AaReport> compare_with_itself(const PerfFile& file, const AaOptions& options) {
  const auto series = series_of(file, options.method);
  if (!series.ok()) return series.status();
  AaReport report;
  report.cases = static_cast<int>(series->size());
  report.repetitions = static_cast<int>(
      (*std::min_element(series->begin(), series->end(), [](const auto* a, const auto* b) {
        return a->repetitions.size() < b->repetitions.size();
      }))->repetitions.size());
  std::vector<Case> cases(series->size());
  for (int split = 0; split < options.splits; ++split) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const PerfSeries& each = *(*series)[i];
      cases[i] = cut(each, random_order(each.repetitions.size(), options.seed,
                                        static_cast<std::uint32_t>(split)));
    }
    const auto results = judge_cases(cases, options.rule);
    if (!results.ok()) return results.status();
    ++report.comparisons;
    report.alarms += std::any_of(results->begin(), results->end(), [](const CaseResult& r) {
      return r.verdict != CaseVerdict::kSame;
    });
    report.test_alarms += std::any_of(results->begin(), results->end(),
                                      [](const CaseResult& r) { return r.significant; });
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::size_t> in_time((*series)[i]->repetitions.size());
    std::iota(in_time.begin(), in_time.end(), std::size_t{0});
    cases[i] = cut(*(*series)[i], in_time);
  }
  const auto halves = judge_cases(cases, options.rule);
  if (!halves.ok()) return halves.status();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if ((*halves)[i].verdict == CaseVerdict::kSame) continue;
    report.drifted.push_back((*series)[i]->variant + " on " + (*series)[i]->shape);
  }
  return report;
}

nlohmann::json to_json(const AaReport& report, const PerfFile& file, const AaOptions& options) {
  return {
      {"file", file.path},
      {"device", file.device},
      {"commit", file.commit},
      {"measured", file.timestamp},
      {"method", options.method},
      {"seed", options.seed},
      {"min_effect", options.rule.min_effect},
      {"alpha", options.rule.alpha},
      {"cases", report.cases},
      {"least_repetitions", report.repetitions},
      {"comparisons", report.comparisons},
      {"false_alarms", report.alarms},
      {"false_alarm_rate", report.rate()},
      {"most_asked", kMaxFalseAlarms},
      {"false_alarms_without_floor", report.test_alarms},
      {"differ_between_halves_in_time", report.drifted},
      {"pass", report.pass()},
  };
}

std::string to_text(const AaReport& report, const PerfFile& file, const AaOptions& options) {
  std::string out = format("A/A of %s\n", one_line(file.path).c_str());
  out +=
      format("%d cases by %s, at least %d repetitions, cut in two at random %d times (seed %llu)\n",
             report.cases, options.method.c_str(), report.repetitions, report.comparisons,
             static_cast<unsigned long long>(options.seed));
  out += format("comparisons with a false alarm: %d of %d, %.1f %%; at most %.0f %% is asked\n",
                report.alarms, report.comparisons, 100 * report.rate(), 100 * kMaxFalseAlarms);
  out += format("by the test alone, without the floor of %.1f %%: %d of %d\n",
                100 * options.rule.min_effect, report.test_alarms, report.comparisons);
  out += report.drifted.empty()
             ? "first half against second half, in time's order: no case differs\n"
             : "first half against second half, in time's order, these differ: " +
                   join(report.drifted) + "\n";
  return out + (report.pass() ? "Verdict: PASS\n" : "Verdict: FAIL\n");
}

}  // namespace fp8_sdpa::bench
