#include "benchmarks/profile/timeline.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "benchmarks/command/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using attention::Phase;
using attention::PhaseMark;

Status broken_log(const std::string& variant, int block, int warp, const std::string& what) {
  return {StatusCode::kExecutorError, variant + ": the phase log of block " +
                                          std::to_string(block) + ", warp " + std::to_string(warp) +
                                          " " + what};
}

/// Appends one warp's spans.
Status append_spans(Timeline& timeline, int block, int warp, const PhaseMark* marks, int count) {
  for (int i = 0; i < count; ++i) {
    if (marks[i].phase == Phase::kEnd) return {};
    if (marks[i].phase == Phase::kNone || i + 1 == count || marks[i + 1].phase == Phase::kNone) {
      break;
    }
    if (marks[i + 1].clock < marks[i].clock) {
      return broken_log(timeline.variant, block, warp, "runs backwards");
    }
    timeline.spans.push_back({marks[i].phase, block, warp, marks[i].multiprocessor, marks[i].tile,
                              marks[i].clock, marks[i + 1].clock - marks[i].clock});
  }
  return broken_log(timeline.variant, block, warp, "has no end");
}

/// Lets each multiprocessor's clock start at its first mark.
void start_clocks_at_zero(std::vector<PhaseSpan>& spans) {
  std::map<int, std::uint64_t> first;
  for (const PhaseSpan& span : spans) {
    const auto [entry, added] = first.emplace(span.multiprocessor, span.start);
    if (!added) entry->second = std::min(entry->second, span.start);
  }
  for (PhaseSpan& span : spans) span.start -= first[span.multiprocessor];
}

Status launch(const traced::TracedVariant& variant, const Workload& workload,
              const attention::PhaseSink& sink) {
  const bool on_device = workload.device().backend == Backend::kDevice;
  const auto function = on_device ? variant.launch_device : variant.launch_host;
  return function(workload.problem(), sink, {});
}

}  // namespace

Result<Timeline> take_timeline(const traced::TracedVariant& variant, const Workload& workload,
                               const std::vector<std::uint16_t>& expected) {
  constexpr int kWarmUps = 3;
  const int blocks = static_cast<int>(variant.blocks(workload.problem()));
  const int per_warp = variant.marks_per_warp(workload.problem());
  const std::vector<PhaseMark> none(static_cast<std::size_t>(blocks) * variant.warps * per_warp);
  const std::size_t bytes = none.size() * sizeof(PhaseMark);
  const auto buffer = reference::allocate(workload.device(), bytes, "phase log");
  if (!buffer.ok()) return buffer.status();
  const attention::PhaseSink sink{static_cast<PhaseMark*>((*buffer)->data()), per_warp};
  if (Status status = workload.poison(); !status.ok()) return status;
  for (int i = 0; i < kWarmUps; ++i) {
    if (Status status = launch(variant, workload, sink); !status.ok()) return status;
  }
  if (Status status = reference::synchronise(workload.device()); !status.ok()) return status;
  if (Status status = (*buffer)->upload(none.data()); !status.ok()) return status;
  if (Status status = launch(variant, workload, sink); !status.ok()) return status;

  const auto output = workload.output();
  if (!output.ok()) return output.status();
  if (*output != expected) {
    return Status(StatusCode::kExecutorError,
                  std::string(variant.name) + ": with a phase log the output is another one");
  }
  const auto outside = (*buffer)->changed_guard_bytes();
  if (!outside.ok()) return outside.status();
  if (*outside != 0) {
    return Status(StatusCode::kExecutorError,
                  std::string(variant.name) + ": the phase log was written out of bounds");
  }
  std::vector<PhaseMark> marks(none.size());
  if (Status status = (*buffer)->download(marks.data()); !status.ok()) return status;
  return make_timeline(std::string(variant.name), blocks, variant.warps, per_warp, marks);
}

Result<Timeline> make_timeline(const std::string& variant, int blocks, int warps, int per_warp,
                               const std::vector<PhaseMark>& marks) {
  Timeline timeline{variant, blocks, warps, {}};
  for (int i = 0; i < blocks * warps; ++i) {
    const PhaseMark* list = marks.data() + static_cast<std::size_t>(i) * per_warp;
    if (Status s = append_spans(timeline, i / warps, i % warps, list, per_warp); !s.ok()) return s;
  }
  start_clocks_at_zero(timeline.spans);
  return timeline;
}

std::vector<PhaseTotal> totals(const Timeline& timeline) {
  std::map<Phase, PhaseTotal> by_phase;
  for (const PhaseSpan& span : timeline.spans) {
    PhaseTotal& total = by_phase[span.phase];
    total.phase = span.phase;
    ++total.spans;
    total.cycles += span.cycles;
  }
  std::vector<PhaseTotal> all;
  for (const auto& [phase, total] : by_phase) all.push_back(total);
  return all;
}

nlohmann::json chrome_trace(const Timeline& timeline, int blocks) {
  constexpr double kCyclesPerMicrosecond = 1000.0;  // the viewer's nanosecond is a cycle
  constexpr int kThreadsPerBlock = 100;             // thread 100 b + w is warp w of block b
  nlohmann::json events = nlohmann::json::array();
  for (const PhaseSpan& span : timeline.spans) {
    if (span.block >= blocks) continue;
    events.push_back({{"name", name_of(span.phase)},
                      {"ph", "X"},
                      {"pid", span.multiprocessor},
                      {"tid", span.block * kThreadsPerBlock + span.warp},
                      {"ts", static_cast<double>(span.start) / kCyclesPerMicrosecond},
                      {"dur", static_cast<double>(span.cycles) / kCyclesPerMicrosecond},
                      {"args", {{"tile", span.tile}, {"block", span.block}, {"warp", span.warp}}}});
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}};
}

std::string phase_table(const Timeline& timeline) {
  const std::vector<PhaseTotal> phases = totals(timeline);
  std::uint64_t all = 0;
  for (const PhaseTotal& total : phases) all += total.cycles;
  std::string text =
      "| phase | cycles per warp | share | spans per warp | cycles per span |\n"
      "|---|---:|---:|---:|---:|\n";
  const double warps = static_cast<double>(timeline.blocks) * timeline.warps;
  for (const PhaseTotal& total : phases) {
    const auto cycles = static_cast<double>(total.cycles);
    const auto spans = static_cast<double>(total.spans);
    text += format("| %s | %.0f | %.1f %% | %.1f | %.0f |\n", name_of(total.phase), cycles / warps,
                   100.0 * cycles / std::max(1.0, static_cast<double>(all)), spans / warps,
                   cycles / spans);
  }
  return text;
}

}  // namespace fp8_sdpa::bench
