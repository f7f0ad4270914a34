#include "benchmarks/compare/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "benchmarks/command/selection.hpp"
#include "benchmarks/command/text.hpp"
#include "benchmarks/compare/comparable.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::one_line;

struct Statistic {
  const char* name;
  double SpeedUps::*speedup;
  double SeriesTimes::*time;
};
constexpr std::array kStatistics = {
    Statistic{"p50", &SpeedUps::p50, &SeriesTimes::p50},
    Statistic{"p90", &SpeedUps::p90, &SeriesTimes::p90},
    Statistic{"mean", &SpeedUps::mean, &SeriesTimes::mean},
};

/// exp(log(x)) may miss x by this: an asked speed-up that is met exactly counts as met.
constexpr double kRounding = 1e-9;

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::string place_of(const PerfFile& file) {
  return file.device.empty() ? file.backend : file.backend + " " + one_line(file.device);
}

Status check_variant(const PerfFile& file, const std::string& variant) {
  if (contains(file.variants(), variant)) return {};
  return refused(file,
                 "no variant " + one_line(variant) + ", expected one of " + join(file.variants()));
}

using VariantPair = std::pair<std::string, std::string>;

Result<std::vector<VariantPair>> pairs_asked(const PerfFile& old_file, const PerfFile& new_file,
                                             const CompareOptions& options) {
  const std::string& from = options.variant_old;
  const std::string& to = options.variant_new;
  if ((from == kAllVariants) != (to == kAllVariants)) {
    return invalid_argument("--variant-old " + one_line(from) + " --variant-new " + one_line(to) +
                            ": expected two names, or all for both");
  }
  std::vector<VariantPair> pairs;
  if (from != kAllVariants) {
    if (Status s = check_variant(new_file, to); !s.ok()) return s;
    for (const std::string& each : split_list(from)) {
      if (Status s = check_variant(old_file, each); !s.ok()) return s;
      pairs.emplace_back(each, to);
    }
    if (pairs.empty()) return invalid_argument("--variant-old: empty, expected a name");
  } else {
    for (const std::string& variant : old_file.variants()) {
      if (Status s = check_variant(new_file, variant); !s.ok()) return s;
      pairs.emplace_back(variant, variant);
    }
    for (const std::string& variant : new_file.variants()) {
      if (Status s = check_variant(old_file, variant); !s.ok()) return s;
    }
  }
  const bool itself = std::any_of(pairs.begin(), pairs.end(), [](const VariantPair& pair) {
    return pair.first == pair.second;
  });
  if (old_file.path == new_file.path && itself) {
    return refused(old_file,
                   "compared with itself, expected another file or --variant-old and "
                   "--variant-new");
  }
  return pairs;
}

Status check_has_shapes(const PerfFile& file, const std::string& variant, const std::string& method,
                        const std::vector<std::string>& asked) {
  const std::vector<std::string> there = file.shapes(variant, method);
  for (const std::string& shape : asked) {
    if (contains(there, shape)) continue;
    return refused(file, "shape " + one_line(shape) + " is missing for " + variant + " by " +
                             method + ", expected it beside " +
                             (there.empty() ? "none" : join(there)));
  }
  return {};
}

/// Those of the shapes that the others have; the rest, either way, is added to `left_out`.
std::vector<std::string> common(const std::vector<std::string>& shapes,
                                const std::vector<std::string>& others,
                                std::vector<std::string>& left_out) {
  std::vector<std::string> both;
  for (const std::string& shape : shapes) {
    (contains(others, shape) ? both : left_out).push_back(shape);
  }
  for (const std::string& shape : others) {
    if (!contains(shapes, shape)) left_out.push_back(shape);
  }
  return both;
}

/// The shapes to judge a pair on; those that are left out are added to `left_out`.
Result<std::vector<std::string>> shapes_of(const PerfFile& old_file, const PerfFile& new_file,
                                           const VariantPair& pair, const CompareOptions& options,
                                           std::vector<std::string>& left_out) {
  std::vector<std::string> shapes = options.shapes;
  const std::string& method = options.method;
  if (shapes.empty()) {
    shapes = old_file.shapes(pair.first, method);
    const auto of_new = new_file.shapes(pair.second, method);
    if (options.common_shapes) {
      shapes = common(shapes, of_new, left_out);
      if (!shapes.empty()) return shapes;
      return refused(new_file, "no shape that both " + pair.first + " and " + pair.second +
                                   " have, by " + one_line(method));
    }
    if (Status s = check_has_shapes(old_file, pair.first, method, of_new); !s.ok()) return s;
    if (shapes.empty()) {
      return refused(old_file, "no series of " + pair.first + " by " + one_line(method) +
                                   ", expected one for each shape");
    }
  }
  if (Status s = check_has_shapes(old_file, pair.first, method, shapes); !s.ok()) return s;
  if (Status s = check_has_shapes(new_file, pair.second, method, shapes); !s.ok()) return s;
  return shapes;
}

double ratio(double old_time, double new_time) {
  return new_time > 0 ? old_time / new_time : std::numeric_limits<double>::quiet_NaN();
}

std::string size_text(const reference::Shape& shape) {
  return format("B=%d H=%d H_kv=%d S=%lld S_kv=%lld D=%d mask=%s", shape.batch, shape.heads_q,
                shape.heads_kv, static_cast<long long>(shape.seq_q),
                static_cast<long long>(shape.seq_kv), shape.head_dim, name_of(shape.mask));
}

bool both_passed(const ComparedSeries& series) {
  return series.old_series->gate_failure.empty() && series.new_series->gate_failure.empty();
}

/// Appends the series of one shape: the judged method, and those that both files have beside it.
Status append_series(const PerfFile& old_file, const PerfFile& new_file, const std::string& shape,
                     const CompareOptions& options, ComparedPair& pair) {
  for (const PerfSeries& from : old_file.series) {
    if (from.variant != pair.variant_old || from.shape != shape) continue;
    const PerfSeries* to = new_file.find(pair.variant_new, shape, from.method);
    if (to == nullptr) continue;
    if (from.sizes.batch > 0 && to->sizes.batch > 0 && !(from.sizes == to->sizes)) {
      return refused(new_file, "shape " + shape + " is " + size_text(to->sizes) + ", expected " +
                                   size_text(from.sizes) + " as in " + one_line(old_file.path));
    }
    ComparedSeries compared{&from, to, {}, from.method == options.method, {}};
    // Of a series whose gates failed there may be no times at all.
    if (both_passed(compared)) {
      if (compared.judged) {
        Status status = check_measurement(old_file, new_file, from, *to);
        if (!status.ok()) return status;
      }
      for (const Statistic& s : kStatistics) {
        compared.speedup.*s.speedup = ratio(from.times.*s.time, to->times.*s.time);
      }
    }
    pair.series.push_back(compared);
  }
  return {};
}

void take_means(ComparedPair& pair) {
  for (const Statistic& s : kStatistics) {
    std::vector<double> values;
    for (const ComparedSeries& series : pair.series) {
      if (series.judged) values.push_back(series.speedup.*s.speedup);
    }
    pair.arithmetic.*s.speedup =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    pair.geometric.*s.speedup = geometric_mean(values);
  }
}

std::vector<double> values_of(const PerfSeries& series, const Statistic& statistic) {
  std::vector<double> values;
  for (const RepetitionTimes& r : series.repetitions) values.push_back(r.times.*statistic.time);
  return values;
}

/// Asks the repetitions of every judged series, of all pairs together: the correction for many
/// questions must know of all of them.
Status test_cases(const CompareOptions& options, std::vector<ComparedPair>& pairs) {
  std::vector<Case> cases;
  std::vector<StatisticResult*> asked;
  for (ComparedPair& pair : pairs) {
    for (ComparedSeries& series : pair.series) {
      if (!series.judged || !both_passed(series)) continue;
      for (const Statistic& s : kStatistics) {
        if (!contains(options.by, s.name)) continue;
        series.results.push_back({s.name, {}});
        cases.push_back({values_of(*series.old_series, s), values_of(*series.new_series, s)});
      }
      for (StatisticResult& result : series.results) asked.push_back(&result);
    }
  }
  const auto results = judge_cases(cases, options.rule);
  if (!results.ok()) return results.status();
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i]->result = (*results)[i];
  return {};
}

void judge(ComparedPair& pair, const CompareOptions& options, std::vector<std::string>& failures) {
  const std::string head = pair.variant_old == pair.variant_new
                               ? pair.variant_new
                               : pair.variant_old + " -> " + pair.variant_new;
  pair.gates_pass = true;
  for (const ComparedSeries& series : pair.series) {
    if (!series.judged) continue;
    for (const PerfSeries* side : {series.old_series, series.new_series}) {
      if (side->gate_failure.empty()) continue;
      pair.gates_pass = false;
      failures.push_back(head + ": gates of " + side->variant + " on " + side->shape +
                         " failed: " + side->gate_failure);
    }
  }
  if (!pair.gates_pass) return;  // GREEN before FAST: no speed-up counts
  for (const Statistic& s : kStatistics) {
    if (!contains(options.by, s.name)) continue;
    const double mean = pair.geometric.*s.speedup;
    if (!(mean >= options.min_speedup - kRounding)) {
      failures.push_back(format("%s: geometric mean speed-up %.3fx of %s is below the asked %.3fx",
                                head.c_str(), mean, s.name, options.min_speedup));
    }
    for (const ComparedSeries& series : pair.series) {
      for (const auto& [statistic, result] : series.results) {
        if (statistic != s.name || result.verdict != CaseVerdict::kSlower) continue;
        failures.push_back(format("%s: %s regressed: %.3fx of %s", head.c_str(),
                                  series.new_series->shape.c_str(), result.speedup, s.name));
      }
    }
  }
}

std::string series_row(const ComparedSeries& series) {
  const bool pass = both_passed(series);
  std::string row = "| " + series.new_series->shape + " | " + series.new_series->method +
                    (series.judged ? "" : " (not judged)") + " |";
  for (double SeriesTimes::*field :
       {&SeriesTimes::p50, &SeriesTimes::p90, &SeriesTimes::mean, &SeriesTimes::std}) {
    row += pass ? format(" %.2f / %.2f |", series.old_series->times.*field,
                         series.new_series->times.*field)
                : " - |";
  }
  for (const Statistic& s : kStatistics) {
    row += pass ? format(" %.3fx |", series.speedup.*s.speedup) : " - |";
  }
  return row + (pass ? " PASS |\n" : " FAIL |\n");
}

std::string mean_row(const char* name, const SpeedUps& means, const ComparedPair& pair) {
  std::string row = "| **" + std::string(name) + "** | | | | | |";
  for (const Statistic& s : kStatistics) {
    row += pair.gates_pass ? format(" **%.3fx** |", means.*s.speedup) : " - |";
  }
  return row + (pair.gates_pass ? " PASS |\n" : " FAIL |\n");
}

std::string clock_text(const PerfSeries& series) {
  const auto clock = sm_clock_of(series);
  return clock ? format("%.0f", *clock) : "unknown";
}

std::string marked_text(const PerfSeries& series) {
  return std::to_string(series.marked_samples) + " of " + std::to_string(series.samples);
}

/// What the repetitions say: a table of its own, because its rows are cases of one question.
std::string test_table(const ComparedPair& pair) {
  std::string rows;
  for (const ComparedSeries& series : pair.series) {
    const PerfSeries& from = *series.old_series;
    const PerfSeries& to = *series.new_series;
    for (const auto& [statistic, result] : series.results) {
      rows += "| " + to.shape + " | " + statistic +
              format(" | %.3fx | %.2g | %.2g | %s | %zu / %zu |", result.speedup, result.p,
                     result.adjusted_p, name_of(result.verdict), from.repetitions.size(),
                     to.repetitions.size()) +
              " " + clock_text(from) + " / " + clock_text(to) + " | " + marked_text(from) + " / " +
              marked_text(to) + " |\n";
    }
  }
  if (rows.empty()) return "";
  return "\n| shape | statistic | speed-up of the repetitions' median | p | p (Holm) | verdict | "
         "repetitions | SM clock MHz | samples below the expected clock |\n"
         "|---|---|---|---|---|---|---|---|---|\n" +
         rows;
}

/// A cell may hold no column's end.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out.empty() ? "-" : out;
}

}  // namespace

double geometric_mean(const std::vector<double>& values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

Result<Comparison> compare(const PerfFile& old_file, const PerfFile& new_file,
                           const CompareOptions& options) {
  if (new_file.backend != old_file.backend || new_file.device != old_file.device) {
    return refused(new_file, "measured on " + place_of(new_file) + ", expected " +
                                 place_of(old_file) + " as in " + one_line(old_file.path));
  }
  for (const std::string& name : options.by) {
    const bool known = std::any_of(kStatistics.begin(), kStatistics.end(),
                                   [&](const Statistic& s) { return s.name == name; });
    if (!known) return invalid_argument("--by " + one_line(name) + ": expected p50, p90 or mean");
  }
  const auto pairs = pairs_asked(old_file, new_file, options);
  if (!pairs.ok()) return pairs.status();
  Comparison comparison;
  for (const VariantPair& asked : *pairs) {
    ComparedPair pair{asked.first, asked.second, {}, {}, {}, {}, false};
    const auto shapes = shapes_of(old_file, new_file, asked, options, pair.left_out);
    if (!shapes.ok()) return shapes.status();
    for (const std::string& shape : *shapes) {
      Status status = append_series(old_file, new_file, shape, options, pair);
      if (!status.ok()) return status;
    }
    take_means(pair);
    comparison.pairs.push_back(std::move(pair));
  }
  if (Status status = test_cases(options, comparison.pairs); !status.ok()) return status;
  for (ComparedPair& pair : comparison.pairs) judge(pair, options, comparison.failures);
  return comparison;
}

std::string to_markdown(const Comparison& comparison, const PerfFile& old_file,
                        const PerfFile& new_file, const CompareOptions& options) {
  std::string out = "# Comparison\n\n| | old | new |\n|---|---|---|\n";
  const auto line = [&](const char* name, const std::string& from, const std::string& to) {
    out += "| " + std::string(name) + " | " + cell(from) + " | " + cell(to) + " |\n";
  };
  line("file", old_file.path, new_file.path);
  line("device", place_of(old_file), place_of(new_file));
  line("commit", old_file.commit, new_file.commit);
  line("measured", old_file.timestamp, new_file.timestamp);
  out += format(
      "\nAsked: a geometric mean speed-up of %.3fx (%s, %s), gates passed, and no shape "
      "below %.2fx. Times are microseconds per launch, old / new. Faster or slower: the "
      "repetitions' "
      "medians lie apart by more than that, and by the Mann-Whitney test with Holm's correction "
      "over "
      "all cases not by chance (p <= %.2f).\n",
      options.min_speedup, join(options.by).c_str(), options.method.c_str(),
      1 - options.rule.min_effect, options.rule.alpha);
  for (const ComparedPair& pair : comparison.pairs) {
    const bool interleaved =
        old_file.path == new_file.path &&
        std::all_of(pair.series.begin(), pair.series.end(), [](const ComparedSeries& s) {
          return s.old_series->interleaved && s.new_series->interleaved;
        });
    out += "\n## " + pair.variant_old + " -> " + pair.variant_new + "\n\n";
    if (interleaved) out += "Measured in one process, samples interleaved at random.\n\n";
    out +=
        "| shape | method | p50 | p90 | mean | std | p50 speed-up | p90 speed-up | "
        "mean speed-up | gates |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for (const ComparedSeries& series : pair.series) out += series_row(series);
    out += mean_row("arithmetic mean", pair.arithmetic, pair);
    out += mean_row("geometric mean", pair.geometric, pair);
    out += test_table(pair);
    if (!pair.left_out.empty()) {
      out += "\nLeft out, because one of the two lacks them: " + join(pair.left_out) + ".\n";
    }
  }
  out += comparison.failures.empty() ? "\n**Verdict: PASS**\n" : "\n**Verdict: FAIL**\n\n";
  for (const std::string& failure : comparison.failures) out += "- " + failure + "\n";
  return out;
}

}  // namespace fp8_sdpa::bench
