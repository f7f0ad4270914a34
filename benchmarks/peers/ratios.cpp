#include "benchmarks/peers/ratios.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "benchmarks/command/text.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr std::string_view kMode = "_no_split";

std::string stem_of(const std::string& variant) {
  return variant.ends_with(kMode) ? variant.substr(0, variant.size() - kMode.size()) : variant;
}

bool failed(const ContestResults& results, const std::string& variant, const std::string& shape) {
  return std::any_of(results.correctness.begin(), results.correctness.end(), [&](const auto& r) {
    return r.result.variant == variant && r.shape.name == shape && !r.result.pass;
  });
}

/// Who writes an LSE, as the records say: "yes", "no", "not known".
std::string writes_lse(const ContestResults& results, const std::string& peer) {
  for (const PerfRecord& record : results.perf) {
    const bool asked = peer.empty() ? !is_peer(record.variant) : record.variant == peer;
    if (asked && record.lse) return *record.lse ? "yes" : "no";
  }
  return "not known";
}

std::string row_text(const RatioRow& row) {
  const std::string head = "| " + row.shape + " | ";
  if (!(row.ours_us > 0)) {
    return head +
           format("- | %.2f | - | %s | %s |\n", row.peer_us, row.reason.c_str(), row.peer.c_str());
  }
  const std::string mark = row.reason.empty() ? "" : " (" + row.reason + ")";
  return head + format("%.2f | %.2f | %.3f | %s | %s |\n", row.ours_us, row.peer_us, row.ratio(),
                       row.variant.c_str(), (row.peer + mark).c_str());
}

std::string summary_text(const std::vector<RatioRow>& rows) {
  double logs = 0;
  int counted = 0;
  int below = 0;
  const RatioRow* least = nullptr;
  for (const RatioRow& row : rows) {
    if (!row.reason.empty()) continue;
    logs += std::log(row.ratio());
    ++counted;
    below += row.ratio() < 1 ? 1 : 0;
    if (least == nullptr || row.ratio() < least->ratio()) least = &row;
  }
  if (least == nullptr) return "No row counts.\n";
  return format("%d of %zu rows count: geometric mean %.3f, least %.3f (%s), %d below 1.\n",
                counted, rows.size(), std::exp(logs / counted), least->ratio(),
                least->shape.c_str(), below);
}

}  // namespace

std::vector<RatioRow> ratio_rows(const std::vector<reference::Shape>& shapes,
                                 const ContestResults& results, const std::string& peer) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<RatioRow> rows;
  for (const reference::Shape& shape : shapes) {
    RatioRow row{shape.name, kNone, kNone, {}, {}, {}};
    for (const PerfRecord& record : results.perf) {
      if (record.method != kRatioMethod || record.shape.name != shape.name) continue;
      const bool ours = !is_peer(record.variant);
      if (!ours && stem_of(record.variant) != peer) continue;
      const double us = summarise(record.samples_us).p50;
      if (!(us < (ours ? row.ours_us : row.peer_us))) continue;
      (ours ? row.ours_us : row.peer_us) = us;
      (ours ? row.variant : row.peer) = record.variant;
    }
    if (row.peer.empty()) continue;
    if (failed(results, row.peer, shape.name)) row.reason = "the peer failed a gate";
    if (row.variant.empty()) {
      row.ours_us = 0;
      row.reason = "none of ours was timed";
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ratio_tables(const std::string& title, const std::vector<reference::Shape>& shapes,
                         const ContestResults& results) {
  std::vector<std::string> stems;
  for (const PerfRecord& record : results.perf) {
    const std::string stem = stem_of(record.variant);
    const bool known = std::find(stems.begin(), stems.end(), stem) != stems.end();
    if (is_peer(stem) && !known) stems.push_back(stem);
  }
  std::string out;
  for (const std::string& peer : stems) {
    const std::vector<RatioRow> rows = ratio_rows(shapes, results, peer);
    if (rows.empty()) continue;
    out +=
        "## " + title + ", " + peer + "\n\nWrites an LSE: ours " + writes_lse(results, "") + ", " +
        peer + " " + writes_lse(results, peer) +
        ".\n\n| shape | ours_us | peer_us | ratio | variant | peer |\n|---|---|---|---|---|---|\n";
    for (const RatioRow& row : rows) out += row_text(row);
    out += "\n" + summary_text(rows) + "\n";
  }
  return out;
}

}  // namespace fp8_sdpa::bench
