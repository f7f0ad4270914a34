#include "benchmarks/report/page.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "benchmarks/command/text.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/run/peer_table.hpp"

namespace fp8_sdpa::bench {
namespace {

using Kind = Column::Kind;

std::string method_title(const std::string& method) {
  if (method == name_of(Method::kEventsWarm)) return "Single launches between events, L2 warm";
  if (method == name_of(Method::kEventsCold)) return "Single launches between events, L2 cold";
  if (method == name_of(Method::kGraphWarm)) return "Launches inside a CUDA graph, L2 warm";
  if (method == name_of(Method::kQueuedWarm))
    return "Single launches behind a held stream, L2 warm";
  if (method == name_of(Method::kQueuedRotating)) {
    return "Single launches behind a held stream, on inputs in turns, larger than L2";
  }
  return method;
}

std::vector<std::string> methods_of(const ReportRun& run) {
  return run.names([](const PerfSeries& series) { return series.method; });
}
std::vector<std::string> shapes_of(const ReportRun& run, const std::string& method) {
  return run.names([&](const PerfSeries& series) {
    return series.method == method ? series.shape : std::string();
  });
}
std::vector<std::string> variants_of(const ReportRun& run, bool peers) {
  return run.names([&](const PerfSeries& series) {
    return is_peer(series.variant) == peers ? series.variant : std::string();
  });
}

std::string microseconds(double us) { return format("%.2f", us); }
std::string times_text(double ratio) { return std::isfinite(ratio) ? format("%.2fx", ratio) : "-"; }
std::string error_text(double error, const char* pattern) {
  return std::isfinite(error) ? format(pattern, error) : "not finite";
}

/// The least median on a shape by a method, of what passed its gates: of ours, or of the peers;
/// nullptr where there is none.
const PerfSeries* fastest(const ReportRun& run, const std::string& shape, const std::string& method,
                          bool peers) {
  const PerfSeries* best = nullptr;
  for (const PerfSeries& series : run.series) {
    const bool asked = series.shape == shape && series.method == method &&
                       is_peer(series.variant) == peers && run.is_green(series);
    if (asked && (best == nullptr || series.times.p50 < best->times.p50)) best = &series;
  }
  return best;
}
const PerfSeries* fastest_of_ours(const ReportRun& run, const std::string& shape,
                                  const std::string& method) {
  return fastest(run, shape, method, /*peers=*/false);
}

double ratio(const PerfSeries* peer, const PerfSeries* ours) {
  if (peer == nullptr || ours == nullptr) return std::numeric_limits<double>::quiet_NaN();
  return peer->times.p50 / ours->times.p50;
}

/// Average, best and worst of the ratios that are numbers.
struct Spread {
  double average = std::numeric_limits<double>::quiet_NaN();
  double best = average;
  double worst = average;
};
Spread spread_of(std::vector<double> ratios) {
  std::erase_if(ratios, [](double r) { return !std::isfinite(r); });
  if (ratios.empty()) return {};
  const auto [worst, best] = std::minmax_element(ratios.begin(), ratios.end());
  const double sum = std::accumulate(ratios.begin(), ratios.end(), 0.0);
  return {sum / static_cast<double>(ratios.size()), *best, *worst};
}

// --- times ---------------------------------------------------------------------------------------

/// A peer's time, marked where its output did not pass, and our speed-up over it.
void append_peer_cells(const ReportRun& run, const PerfSeries* ours, const PerfSeries* peer,
                       std::vector<Cell>& row) {
  if (peer == nullptr) {
    row.insert(row.end(), {"-", "-"});
    return;
  }
  const GateVerdict* verdict = run.verdict(peer->variant, peer->shape);
  const char* mark = verdict == nullptr ? " (not judged)"
                     : verdict->pass()  ? ""
                                        : " (gates failed)";
  row.emplace_back(microseconds(peer->times.p50) + mark);
  row.emplace_back(times_text(ratio(peer, ours)));
}

/// A row per shape: our fastest, every peer with its ratio, the ratio to the fastest peer. What a
/// reader looks for stands first: on a phone the rest is out of sight.
Table peer_times(const ReportRun& run, const std::string& method, double ceiling) {
  const std::vector<std::string> peers = variants_of(run, true);
  Table table{{{"shape", Kind::kCode}, {"ours p50 µs", Kind::kNumber}}};
  if (peers.size() > 1) table.columns.push_back({"ratio to the fastest peer", Kind::kNumber});
  for (const std::string& peer : peers) {
    table.columns.push_back({peer + " p50 µs", Kind::kNumber});
    table.columns.push_back({"ratio", Kind::kNumber});
  }
  table.columns.push_back({"95 % interval µs", Kind::kNumber});
  table.columns.push_back({"TFLOP/s", Kind::kNumber});
  if (ceiling > 0) table.columns.push_back({"of the ceiling", Kind::kNumber});
  for (const char* title : {"p90 µs", "mean µs", "std µs"}) {
    table.columns.push_back({title, Kind::kNumber});
  }
  table.columns.push_back({"our fastest kernel", Kind::kCode});
  table.columns.push_back({"B × H × S × D", Kind::kText});
  for (const std::string& shape : shapes_of(run, method)) {
    const PerfSeries* ours = fastest_of_ours(run, shape, method);
    if (ours == nullptr) continue;
    std::vector<Cell> row = {shape, Cell(microseconds(ours->times.p50), true)};
    if (peers.size() > 1) {
      row.emplace_back(times_text(ratio(fastest(run, shape, method, /*peers=*/true), ours)), true);
    }
    for (const std::string& peer : peers) {
      append_peer_cells(run, ours, run.find(peer, shape, method), row);
    }
    row.emplace_back(ours->interval
                         ? format("%.2f to %.2f", ours->interval->first, ours->interval->second)
                         : std::string("-"));
    row.emplace_back(format("%.2f", ours->tflops));
    if (ceiling > 0) row.emplace_back(format("%.1f %%", 100 * ours->tflops / ceiling));
    row.insert(row.end(), {microseconds(ours->times.p90), microseconds(ours->times.mean),
                           microseconds(ours->times.std), ours->variant, size_text(ours->sizes)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Average, best, worst ratio and the verdict on each peer.
Table peer_verdicts(const ReportRun& run, const std::string& method) {
  Table table{{{"peer", Kind::kCode},
               {"average", Kind::kNumber},
               {"best", Kind::kNumber},
               {"worst", Kind::kNumber},
               {"verdict", Kind::kText},
               {"next", Kind::kText}}};
  for (const std::string& peer : variants_of(run, true)) {
    std::vector<double> ratios;
    for (const std::string& shape : shapes_of(run, method)) {
      ratios.push_back(ratio(run.find(peer, shape, method), fastest_of_ours(run, shape, method)));
    }
    const Spread spread = spread_of(ratios);
    const PeerVerdict verdict = peer_verdict(spread.average);
    table.rows.push_back({peer, times_text(spread.average), times_text(spread.best),
                          times_text(spread.worst), Cell(verdict.word, true), verdict.next_step});
  }
  return table;
}

/// Every variant's median on every shape; the fastest of ours is strong.
Table all_times(const ReportRun& run, const std::string& method) {
  const std::vector<std::string> shapes = shapes_of(run, method);
  Table table{{{"p50 µs", Kind::kCode}}};
  for (const std::string& shape : shapes) table.columns.push_back({shape, Kind::kNumber});
  for (const bool peers : {false, true}) {
    for (const std::string& variant : variants_of(run, peers)) {
      table.rows.push_back({variant});
      for (const std::string& shape : shapes) {
        const PerfSeries* cell = run.find(variant, shape, method);
        table.rows.back().push_back(
            cell == nullptr
                ? Cell("-")
                : Cell(microseconds(cell->times.p50), cell == fastest_of_ours(run, shape, method)));
      }
    }
  }
  table.fold = "All " + std::to_string(table.rows.size()) + " kernels by this method";
  return table;
}

/// Series of which samples were taken while the clock was low, a line each.
std::vector<std::string> marked_series(const ReportRun& run) {
  std::vector<std::string> lines;
  for (const PerfSeries& series : run.series) {
    if (series.marked_samples == 0) continue;
    lines.push_back(as_code(series.variant) + " on " + as_code(series.shape) + ", " +
                    method_title(series.method) + ": " + std::to_string(series.marked_samples));
  }
  return lines;
}

void append_times(const ReportData& data, Document& page) {
  for (const ReportRun& run : data.runs) {
    if (run.series.empty()) continue;
    page.blocks.push_back(Heading{2, "Times of " + as_code(run.folder)});
    page.blocks.push_back(
        Paragraph{"Microseconds per launch on " + as_code(run.device) +
                  ". Ratio: the peer's median over ours, so above 1 ours is faster."});
    for (const std::string& method : methods_of(run)) {
      page.blocks.push_back(Heading{3, method_title(method)});
      Table times = peer_times(run, method, data.ceiling_tflops(run.device));
      if (method != name_of(kJudged)) {
        times.fold = "Ours and peers on " + std::to_string(times.rows.size()) + " shapes";
      }
      page.blocks.push_back(std::move(times));
      if (!variants_of(run, true).empty()) page.blocks.push_back(peer_verdicts(run, method));
      page.blocks.push_back(all_times(run, method));
    }
    if (const auto marked = marked_series(run); !marked.empty()) {
      page.blocks.push_back(Bullets{marked, "Samples below the expected clock: " +
                                                std::to_string(marked.size()) + " series"});
    }
  }
}

// --- correctness ---------------------------------------------------------------------------------

Table errors(const ReportRun& run) {
  Table table{{{"kernel", Kind::kCode},
               {"shape", Kind::kCode},
               {"max abs err", Kind::kNumber},
               {"mean abs err", Kind::kNumber},
               {"rel L2", Kind::kNumber},
               {"kernel's own rel L2", Kind::kNumber},
               {"seeds passed", Kind::kNumber}}};
  for (const auto& [key, verdict] : run.verdicts) {
    table.rows.push_back({key.first, key.second, error_text(verdict.max_abs_err, "%.4f"),
                          error_text(verdict.mean_abs_err, "%.4f"),
                          error_text(verdict.rel_l2, "%.4f"),
                          error_text(verdict.kernel_rel_l2, "%.2e"),
                          format("%d of %d", verdict.passed, verdict.judged)});
  }
  table.fold = format("%zu kernels and shapes of ", table.rows.size()) + as_code(run.folder);
  return table;
}

void append_correctness(const ReportData& data, Document& page) {
  if (data.runs.empty()) return;
  page.blocks.push_back(Heading{2, "Correctness"});
  page.blocks.push_back(Paragraph{
      "The largest error over the seeds. Max, mean and rel L2 are against the unquantised "
      "inputs and hold the rounding to FP8; the kernel's own error is against the "
      "dequantised ones."});
  std::vector<std::string> failures;
  for (const ReportRun& run : data.runs) {
    if (!run.gated) continue;
    page.blocks.push_back(errors(run));
    for (const auto& [key, verdict] : run.verdicts) {
      if (verdict.pass()) continue;
      failures.push_back(as_code(key.first) + " on " + as_code(key.second) +
                         " failed: " + as_code(verdict.failure()));
    }
  }
  if (!failures.empty()) page.blocks.push_back(Bullets{failures});
}

// --- verdict -------------------------------------------------------------------------------------

std::string against_peers(const ReportData& data) {
  const std::string method = name_of(kJudged);
  std::vector<double> ratios;
  for (const ReportRun& run : data.runs) {
    for (const std::string& shape : shapes_of(run, method)) {
      ratios.push_back(
          ratio(fastest(run, shape, method, /*peers=*/true), fastest_of_ours(run, shape, method)));
    }
  }
  const Spread spread = spread_of(ratios);
  const PeerVerdict verdict = peer_verdict(spread.average);
  const std::string figures =
      std::isfinite(spread.average)
          ? format(" (the fastest peer's time over ours: average %.2fx, best %.2fx, worst %.2fx)",
                   spread.average, spread.best, spread.worst)
          : "";
  return "Against peers: " + verdict.word + figures + ". Next: " + verdict.next_step + ".";
}

Notice verdict_of(const ReportData& data) {
  const GateCount gates = gate_count(data);
  std::string text;
  if (gates.judged == 0) {
    text = "No case was judged.";
  } else if (gates.passed == gates.judged) {
    text = format("GREEN: %d of %d cases passed every gate.", gates.passed, gates.judged);
  } else {
    text = format("RED: %d of %d cases failed a gate.", gates.judged - gates.passed, gates.judged);
  }
  return {gates.judged > 0 && gates.passed == gates.judged, text + " " + against_peers(data)};
}

/// Runs whose times have no peer beside them, in one line.
std::vector<std::string> without_peers(const ReportData& data) {
  std::vector<std::string> folders;
  for (const ReportRun& run : data.runs) {
    if (!run.series.empty() && variants_of(run, true).empty())
      folders.push_back(as_code(run.folder));
  }
  if (folders.empty()) return {};
  return {"Ratios to peers: no peer was measured in " + join(folders) + "."};
}

}  // namespace

std::string size_text(const reference::Shape& shape) {
  const auto pair = [](std::int64_t q, std::int64_t kv) {
    return std::to_string(q) + (q == kv ? "" : "/" + std::to_string(kv));
  };
  return std::to_string(shape.batch) + " × " + pair(shape.heads_q, shape.heads_kv) + " × " +
         pair(shape.seq_q, shape.seq_kv) + " × " + std::to_string(shape.head_dim) +
         (shape.mask == Mask::kCausal ? ", causal" : "");
}

GateCount gate_count(const ReportData& data) {
  GateCount count;
  for (const ReportRun& run : data.runs) {
    if (!run.gated) continue;
    for (const auto& [key, verdict] : run.verdicts) {
      if (is_peer(key.first)) continue;
      count.passed += verdict.passed;
      count.judged += verdict.judged;
    }
  }
  return count;
}

Document report_page(const ReportData& data, const std::vector<Figure>& figures,
                     const std::vector<std::string>& left_out, std::time_t when) {
  Document page{"fp8-sdpa report", {}};
  page.blocks.push_back(Heading{1, "fp8-sdpa: what was measured"});
  std::vector<std::string> folders;
  for (const ReportRun& run : data.runs) folders.push_back(as_code(run.folder));
  page.blocks.push_back(
      Paragraph{"Made " + iso_timestamp(when) + " by `./sdpa report`" +
                (folders.empty() ? "." : " from the runs " + join(folders) + ".")});
  page.blocks.push_back(verdict_of(data));
  if (!figures.empty()) {
    page.blocks.push_back(Heading{2, "Figures"});
    page.blocks.push_back(Figures{figures});
  }
  append_resources(data, page);
  append_kill_matrix(data, page);
  append_times(data, page);
  append_correctness(data, page);
  append_profiles(data, page);
  append_limits(data, page);
  append_scaling(data, page);
  append_environment(data, page);
  std::vector<std::string> missing;
  for (const std::string& line : data.refused) missing.push_back(as_code(line));
  for (const auto& lines : {without_peers(data), data.left_out, left_out}) {
    missing.insert(missing.end(), lines.begin(), lines.end());
  }
  if (!missing.empty()) {
    page.blocks.push_back(Heading{2, "Left out"});
    page.blocks.push_back(Bullets{missing});
  }
  return page;
}

}  // namespace fp8_sdpa::bench
