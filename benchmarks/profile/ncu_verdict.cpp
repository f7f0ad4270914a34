#include "benchmarks/profile/ncu_verdict.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/command/text.hpp"
#include "benchmarks/files/results.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::one_line;

constexpr const char* kDram = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kDuration = "gpu__time_duration.sum";
/// One of these is there on every chip; Hopper's wgmma counts in the first and the last.
constexpr const char* kTensorPipes[] = {
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_active",
};
constexpr const char* kLocal[] = {
    "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_local_st.sum",
};

using Row = std::vector<std::string>;

/// Rows of comma-separated cells, each in quotes or not; "" in quotes is a quote.
std::vector<Row> csv_rows(const std::string& text) {
  std::vector<Row> rows;
  Row row;
  std::string cell;
  bool quoted = false;
  const auto end_row = [&] {
    row.push_back(std::move(cell));
    cell.clear();
    if (row.size() > 1 || !row.front().empty()) rows.push_back(std::move(row));
    row.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      cell += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      row.push_back(std::move(cell));
      cell.clear();
    } else if (!quoted && c == '\n') {
      end_row();
    } else if (quoted || c != '\r') {
      cell += c;
    }
  }
  end_row();
  return rows;
}

/// The number of a cell, thousands separators dropped; nothing for text, empty cells and n/a.
std::optional<double> number_of(std::string cell) {
  std::erase(cell, ',');
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || cell.empty()) return {};
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// Sums of one kernel's launches.
struct Sums {
  int launches = 0;
  std::map<std::string, std::pair<double, int>> metrics;
};

double total_of(const Sums& sums) {
  const auto duration = sums.metrics.find(kDuration);
  return duration == sums.metrics.end() ? sums.launches : duration->second.first;
}

std::optional<double> metric(const KernelCounters& counters, const char* name) {
  const auto found = counters.metrics.find(name);
  return found == counters.metrics.end() ? std::nullopt : std::optional(found->second);
}

Status missing(const char* name) {
  return invalid_argument("metric " + std::string(name) +
                          ": no number in the profile, expected one on this chip");
}

}  // namespace

const std::vector<std::string>& ncu_metrics() {
  static const std::vector<std::string> metrics = [] {
    std::vector<std::string> names(std::begin(kTensorPipes), std::end(kTensorPipes));
    names.insert(names.end(), std::begin(kLocal), std::end(kLocal));
    for (const char* name : {
             kDram,
             kDuration,
             "dram__bytes.sum",
             "sm__inst_executed_pipe_tensor.sum",
             "sm__throughput.avg.pct_of_peak_sustained_elapsed",
             "sm__warps_active.avg.pct_of_peak_sustained_active",
             "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
             "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
             "lts__t_sector_hit_rate.pct",
             "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
             "smsp__issue_active.avg.pct_of_peak_sustained_active",
             "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
             "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
             "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
             "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
             "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
             "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
         }) {
      names.emplace_back(name);
    }
    return names;
  }();
  return metrics;
}

Result<KernelCounters> parse_ncu_csv(const std::string& csv, const std::string& name) {
  const auto refused = [&](const std::string& finding) {
    return invalid_argument(one_line(name) + ": " + finding);
  };
  const std::vector<Row> rows = csv_rows(csv);
  const auto header =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.front() == "ID"; });
  if (header == rows.end()) {
    return refused("no row of names that starts with \"ID\", expected ncu's raw page as CSV");
  }
  const auto kernel_column = std::find(header->begin(), header->end(), "Kernel Name");
  if (kernel_column == header->end()) return refused("no column \"Kernel Name\"");
  const auto kernel_at = static_cast<std::size_t>(kernel_column - header->begin());
  const auto asked = [](const std::string& column) {
    const std::vector<std::string>& metrics = ncu_metrics();
    return std::find(metrics.begin(), metrics.end(), column) != metrics.end();
  };
  std::map<std::string, Sums> kernels;
  for (auto row = header + 1; row != rows.end(); ++row) {
    if (!number_of(row->front())) continue;  // the units, or a message of ncu's
    if (row->size() != header->size()) {
      return refused("launch " + row->front() + " has " + std::to_string(row->size()) +
                     " cells, expected " + std::to_string(header->size()));
    }
    Sums& sums = kernels[(*row)[kernel_at]];
    ++sums.launches;
    for (std::size_t column = kernel_at + 1; column < row->size(); ++column) {
      const auto value = number_of((*row)[column]);
      // ncu adds a page of the device's attributes.
      if (!value || !asked((*header)[column])) continue;
      auto& [sum, count] = sums.metrics[(*header)[column]];
      sum += *value;
      ++count;
    }
  }
  if (kernels.empty()) return refused("no launch, expected one row for each");
  const auto chosen = std::max_element(
      kernels.begin(), kernels.end(),
      [](const auto& a, const auto& b) { return total_of(a.second) < total_of(b.second); });
  KernelCounters counters{chosen->first, chosen->second.launches, {}};
  for (const auto& [key, sum] : chosen->second.metrics) {
    counters.metrics[key] = sum.first / sum.second;
  }
  return counters;
}

Result<ProfileVerdict> judge_profile(const KernelCounters& counters) {
  constexpr double kTensorIdle = 10;  // percent, as the rest
  constexpr double kMemoryBound = 70;
  constexpr double kComputeBound = 50;
  constexpr double kLatencyBound = 40;
  std::optional<double> tensor;
  for (const char* name : kTensorPipes) {
    const auto value = metric(counters, name);
    if (value) tensor = std::max(tensor.value_or(0), *value);
  }
  if (!tensor) return missing(kTensorPipes[0]);
  const auto dram = metric(counters, kDram);
  if (!dram) return missing(kDram);
  double local = 0;
  for (const char* name : kLocal) {
    const auto value = metric(counters, name);
    if (!value) return missing(name);
    local += *value;
  }
  const std::string pipe = format("tensor pipe %.1f %%", *tensor);
  const std::string memory = format("DRAM %.1f %%", *dram);
  if (*tensor < kTensorIdle) {
    return ProfileVerdict{"tensor cores not engaged", pipe + " < 10 %",
                          "check the SASS for HMMA or QGMMA, and how much of the time other "
                          "phases take"};
  }
  if (local > 0) {
    return ProfileVerdict{"spills", format("%.0f local-memory instructions > 0", local),
                          "cut live registers, or raise the limit of the launch bounds"};
  }
  if (*dram > kMemoryBound) {
    return ProfileVerdict{"memory-bound", memory + " > 70 %",
                          "pipeline the loads and coalesce them"};
  }
  if (*tensor > kComputeBound) {
    return ProfileVerdict{"compute-bound", pipe + " > 50 %",
                          "raise occupancy and cut synchronisation"};
  }
  if (*tensor < kLatencyBound && *dram < kLatencyBound) {
    return ProfileVerdict{"latency-bound", pipe + " and " + memory + ", both < 40 %",
                          "look at the warp stalls: overlap loads and phases, fill more SMs"};
  }
  return ProfileVerdict{"mixed", pipe + ", " + memory,
                        "look at the warp stalls and the timeline of phases"};
}

nlohmann::json verdict_json(const KernelCounters& counters, const ProfileVerdict& verdict,
                            const std::string& shape, const std::string& variant) {
  return {{"schema_version", kResultSchemaVersion},
          {"shape", shape},
          {"variant", variant},
          {"kernel", counters.kernel},
          {"launches", counters.launches},
          {"verdict", verdict.verdict},
          {"because", verdict.because},
          {"next_step", verdict.next_step},
          {"metrics", counters.metrics}};
}

std::string verdict_text(const KernelCounters& counters, const ProfileVerdict& verdict,
                         const std::string& shape, const std::string& variant) {
  std::string out = variant + " on " + shape + ": " + verdict.verdict + " (" + verdict.because +
                    ")\nnext: " + verdict.next_step + "\nkernel: " + counters.kernel + ", " +
                    std::to_string(counters.launches) + " launches, averages:\n";
  for (const auto& [name, value] : counters.metrics) {
    out += "  " + name + " = " + format("%.6g", value) + "\n";
  }
  return out;
}

}  // namespace fp8_sdpa::bench
