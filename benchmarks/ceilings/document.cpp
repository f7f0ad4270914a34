// What was measured, as JSON and as a table.
#include <nlohmann/json.hpp>

#include "benchmarks/ceilings/device_limits.hpp"
#include "benchmarks/command/text.hpp"
#include "benchmarks/statistics/stats.hpp"

namespace fp8_sdpa::bench {
namespace {

constexpr double kMicroseconds = 1e6;

std::optional<double> per_clock(const MeasuredLimit& ceiling, int sm_count) {
  if (!ceiling.cycles || !(*ceiling.cycles > 0) || sm_count <= 0) return std::nullopt;
  return ceiling.operations / *ceiling.cycles / sm_count;
}

/// The value in the unit that people speak of.
std::string value_text(const MeasuredLimit& ceiling) {
  constexpr double kTera = 1e12;
  switch (ceiling.unit) {
    case LimitUnit::kFlopPerSecond: return format("%.1f TFLOP/s", ceiling.value() / kTera);
    case LimitUnit::kBytesPerSecond: return format("%.3f TB/s", ceiling.value() / kTera);
    case LimitUnit::kOperationPerSecond: return format("%.3f T/s", ceiling.value() / kTera);
    case LimitUnit::kMicroseconds: return format("%.2f us", ceiling.value());
  }
  return "";
}

}  // namespace

double MeasuredLimit::value() const {
  const double p50 = summarise(samples_us).p50;
  return unit == LimitUnit::kMicroseconds ? p50 : operations / (p50 / kMicroseconds);
}

nlohmann::json limits_document(const RunInfo& run, const MeasuredLimits& ceilings, int sm_count) {
  nlohmann::json out = result_header(run);
  out["results"] = nlohmann::json::array();
  for (const MeasuredLimit& ceiling : ceilings.measured) {
    const Summary summary = summarise(ceiling.samples_us);
    const std::optional<double> rate = per_clock(ceiling, sm_count);
    out["results"].push_back({
        {"name", ceiling.name},
        {"what", ceiling.what},
        {"unit", name_of(ceiling.unit)},
        {"value", ceiling.value()},
        {"operations", ceiling.operations},
        {"per_clock_per_sm", rate ? nlohmann::json(*rate) : nlohmann::json()},
        {"p50_us", summary.p50},
        {"p90_us", summary.p90},
        {"min_us", summary.min},
        {"std_us", summary.std},
        {"samples_us", ceiling.samples_us},
    });
  }
  out["left_out"] = nlohmann::json::array();
  for (const LeftOut& entry : ceilings.left_out) {
    out["left_out"].push_back({{"name", entry.name}, {"reason", entry.reason}});
  }
  return out;
}

std::string limits_table(const MeasuredLimits& ceilings, int sm_count) {
  std::string out = "| limit | value | per clock and multiprocessor | what |\n|---|---|---|---|\n";
  for (const MeasuredLimit& ceiling : ceilings.measured) {
    const std::optional<double> rate = per_clock(ceiling, sm_count);
    out += "| " + ceiling.name + " | " + value_text(ceiling) + " | " +
           (rate ? format("%.1f", *rate) : std::string("-")) + " | " + ceiling.what + " |\n";
  }
  for (const LeftOut& entry : ceilings.left_out) {
    out += "\n" + entry.name + " is left out: " + entry.reason + "\n";
  }
  return out;
}

}  // namespace fp8_sdpa::bench
