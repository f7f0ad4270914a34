#include "benchmarks/run/run_report.hpp"

#include <algorithm>

#include "benchmarks/command/text.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr int kShapeWidth = 8;

std::string line_head(const std::string& shape, std::uint64_t seed, const std::string& variant) {
  return format("[%-*s] seed=", kShapeWidth, shape.c_str()) + std::to_string(seed) +
         " variant=" + variant + ": ";
}

/// One row: the seeds of a (variant, shape) together.
struct Row {
  std::string variant;
  std::string shape;
  double max_err = 0;
  double mean_err = 0;
  double rel_l2 = 0;
  bool pass = true;
};

std::vector<Row> rows_of(const std::vector<CorrectnessRecord>& records) {
  std::vector<Row> rows;
  for (const CorrectnessRecord& record : records) {
    const reference::CaseResult& result = record.result;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) {
      return r.variant == result.variant && r.shape == record.shape.name;
    });
    if (row == rows.end()) {
      rows.push_back({result.variant, record.shape.name});
      row = rows.end() - 1;
    }
    row->max_err = std::max(row->max_err, result.quantised.max_abs_err);
    row->mean_err = std::max(row->mean_err, result.quantised.mean_abs_err);
    row->rel_l2 = std::max(row->rel_l2, result.quantised.rel_l2);
    row->pass = row->pass && result.pass;
  }
  return rows;
}

/// The series' median as a table cell, or "-" where the series was not measured.
std::string median_cell(const std::vector<PerfRecord>& perf, const Row& row, Method method) {
  for (const PerfRecord& record : perf) {
    if (record.variant == row.variant && record.shape.name == row.shape &&
        record.method == method) {
      return format("%.2f", summarise(record.samples_us).p50);
    }
  }
  return "-";
}

/// Pads the cells of each column to one width; the first two columns are text, the rest numbers.
std::string lay_out(const std::vector<std::vector<std::string>>& table) {
  constexpr std::size_t kTextColumns = 2;
  std::string out;
  for (const auto& row : table) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : table) width = std::max(width, other[column].size());
      const std::string padding(width - row[column].size(), ' ');
      out += column == 0 ? "" : "  ";
      out += column < kTextColumns ? row[column] + padding : padding + row[column];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}  // namespace

std::string correctness_line(const CorrectnessRecord& record) {
  const reference::CaseResult& result = record.result;
  return line_head(record.shape.name, result.seed, result.variant) +
         format("max_err=%.4f, mean_err=%.4f, %%bad=%.1f%% %s", result.quantised.max_abs_err,
                result.quantised.mean_abs_err, result.quantised.pct_bad,
                result.pass ? "PASS" : "FAIL") +
         (record.source == nullptr
              ? ""
              : format(
                    " (no gate on these three for a file's tensors: rel_l2=%.4f, the kernel's own "
                    "rel_l2=%.2g and error budgets are judged)",
                    result.quantised.rel_l2, result.kernel.rel_l2));
}

std::string perf_line(const PerfRecord& record) {
  const Summary summary = summarise(record.samples_us);
  return line_head(record.shape.name, record.seed, record.variant) +
         format("p50=%.2fus, p90=%.2fus, std=%.2fus", summary.p50, summary.p90, summary.std);
}

std::string closing_table(const std::vector<CorrectnessRecord>& correctness,
                          const std::vector<PerfRecord>& perf) {
  std::vector<std::vector<std::string>> table = {
      {"variant", "shape", "max_err", "mean_err", "rel_l2", "gates"}};
  if (!perf.empty()) {
    for (const char* title : {"warm p50 us", "cold p50 us", "graph p50 us"}) {
      table.front().emplace_back(title);
    }
  }
  for (const Row& row : rows_of(correctness)) {
    table.push_back({row.variant, row.shape, format("%.4f", row.max_err),
                     format("%.4f", row.mean_err), format("%.4f", row.rel_l2),
                     row.pass ? "PASS" : "FAIL"});
    if (perf.empty()) continue;
    for (const Method method : {Method::kEventsWarm, Method::kEventsCold, Method::kGraphWarm}) {
      table.back().push_back(median_cell(perf, row, method));
    }
  }
  return lay_out(table);
}

std::string listing(const reference::Config& config, std::span<const Variant> table) {
  std::vector<std::vector<std::string>> variants;
  for (const Variant& variant : table) {
    variants.push_back({std::string(variant.name), std::string(variant.summary)});
  }
  std::vector<std::vector<std::string>> shapes;
  for (const reference::Shape& shape : config.shapes) {
    std::string what = format("B=%d H=%d S=%lld D=%d", shape.batch, shape.heads_q,
                              static_cast<long long>(shape.seq_q), shape.head_dim);
    if (shape.heads_kv != shape.heads_q) what += format(" H_kv=%d", shape.heads_kv);
    if (shape.seq_kv != shape.seq_q) {
      what += format(" S_kv=%lld", static_cast<long long>(shape.seq_kv));
    }
    if (shape.mask == Mask::kCausal) what += " causal";
    shapes.push_back({shape.name, what + "; suites " + join(shape.suites)});
  }
  return "variants:\n" + lay_out(variants) + "\nshapes of " + reference::one_line(config.path) +
         ":\n" + lay_out(shapes);
}

std::string verdict_line(const std::vector<CorrectnessRecord>& records) {
  const auto passed = std::count_if(records.begin(), records.end(),
                                    [](const CorrectnessRecord& r) { return r.result.pass; });
  const auto total = static_cast<std::ptrdiff_t>(records.size());
  if (passed == total && total > 0) {
    return "ALL CORRECTNESS CHECKS PASSED (" + std::to_string(passed) + " of " +
           std::to_string(total) + ")";
  }
  return "CORRECTNESS CHECKS FAILED (" + std::to_string(total - passed) + " of " +
         std::to_string(total) + ")";
}

}  // namespace fp8_sdpa::bench
