#include "benchmarks/peers/contest.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "benchmarks/measure/timer.hpp"
#include "benchmarks/measure/timing.hpp"
#include "benchmarks/measure/workload.hpp"
#include "benchmarks/peers/judged_run.hpp"
#include "benchmarks/run/peer_table.hpp"
#include "benchmarks/run/run_report.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::CaseResult;
using reference::Shape;

/// What a backend of the second process rounds to.
Formats torch_formats(const std::string& backend) {
  const bool fp8 = backend == "peer/flash3_fp8";
  return {fp8 ? reference::Weights::kE4M3 : reference::Weights::kBFloat16, Dtype::kBFloat16};
}

/// One shape's part of a contest.
class Match {
 public:
  Match(const ContestPlan& plan, const Device& device, TorchPeers* torch, const Output& output,
        ContestResults& results)
      : plan_(plan), device_(device), torch_(torch), output_(output), results_(results) {}

  Status run(const Shape& shape) {
    output_.progress(shape.name + ": inputs and references");
    // As many rows as the goal shapes of fp8_sdpa_bench: a tolerance stated for the worst head of a
    // tensor says little of the worst of 64 heads by 64 rows each.
    auto sampled = sample_case(shape, plan_.seed, plan_.judged_scores);
    if (!sampled.ok()) return sampled.status();
    sampled_ = std::move(*sampled);
    auto workload = Workload::make(*sampled_.whole, device_, plan_.output, plan_.lse);
    if (!workload.ok()) return workload.status();
    if (Status s = judge_all(*workload); !s.ok()) return s;
    if (Status s = judge_torch(); !s.ok()) return s;
    return time_all();
  }

 private:
  void decline(const std::string& name, const std::string& reason) const {
    output_.line("note: " + name + " declines " + sampled_.whole->shape.name + ": " + reason);
  }

  void record(CorrectnessRecord judged) const {
    output_.line(correctness_line(judged));
    if (!judged.result.pass) output_.line("  " + judged.result.failure());
    results_.correctness.push_back(std::move(judged));
  }

  void record(const std::string& name, CaseResult result) const {
    result.variant = name;
    record({sampled_.whole->shape, sampled_.whole->dtype, std::move(result)});
  }

  Status judge_all(const Workload& workload) {
    std::vector<const Variant*> ours = plan_.variants;
    if (ours.empty()) {
      const auto chosen = fp8_sdpa::plan(workload.problem(), device_);
      if (!chosen.ok()) return chosen.status();
      ours.push_back(&chosen->variant());
    }
    int passed = 0;
    for (const Variant* variant : ours) {
      const auto pass = judge_variant(workload, *variant, formats_of(*variant, plan_.output),
                                      nullptr, plan_.lse.has_value());
      if (!pass.ok()) return pass.status();
      passed += *pass ? 1 : 0;
    }
    if (passed == 0) results_.ours_pass = false;
    for (const Peer& peer : peers()) {
      const auto pass =
          judge_variant(workload, peer.variant, peer.formats, peer.output_scale, peer.writes_lse);
      if (!pass.ok()) return pass.status();
    }
    return {};
  }

  /// Whether it serves the problem and passes. Puts what is to be timed into contestants_.
  Result<bool> judge_variant(const Workload& workload, const Variant& variant,
                             const Formats& formats, double (*output_scale)(const Plan&),
                             bool writes_lse) {
    const std::string name(variant.name);
    const bool ours = !is_peer(name);
    output_.progress(sampled_.whole->shape.name + ": " + name);
    const auto plan = workload.plan_for(variant);
    if (!plan.ok() && plan.status().code() == StatusCode::kUnsupported) {
      decline(name, plan.status().message());
      return false;
    }
    if (!plan.ok()) return plan.status();
    const double scale = output_scale != nullptr ? output_scale(*plan) : 1.0;
    auto judged = run_and_judge(workload, *plan, sampled_, formats, scale, plan_.config.tolerances,
                                plan_.budgets_only);
    if (!judged.ok()) {
      if (!is_kernel_error(judged.status())) return judged.status();
      record(error_record(*sampled_.whole, variant, judged.status()));
      results_.ours_pass = results_.ours_pass && !ours;
      return false;
    }
    const bool pass = judged->result.pass;
    record(name, std::move(judged->result));
    results_.ours_pass = results_.ours_pass && (pass || !ours);
    // Behind an FP8 output lies what others left in O's memory.
    if (size_of(formats.output) == 1) judged->bits.resize(judged->bits.size() / 2);
    if (pass || !ours) contestants_.push_back({&variant, std::move(judged->bits), writes_lse});
    return pass;
  }

  Status judge_torch() {
    if (torch_ == nullptr) return {};
    std::vector<DeclinedPeer> declined;
    const auto serving = torch_->set_case(sampled_, plan_.scratch, declined);
    if (!serving.ok()) return leave_torch_out(serving.status());
    for (const DeclinedPeer& peer : declined) decline(peer.name, peer.reason);
    for (const std::string& name : *serving) {
      // What is here in this process as well is timed here.
      if (contestant(name) != nullptr) continue;
      output_.progress(sampled_.whole->shape.name + ": " + name);
      const auto bits = torch_->output(name, plan_.scratch);
      if (!bits.ok()) {
        decline(name, bits.status().message());
        continue;
      }
      const Formats formats = torch_formats(name);
      record(name, judge_output(sampled_, decode_output(*bits, formats.output, 1.0), formats,
                                plan_.config.tolerances));
      torch_names_.push_back(name);
    }
    return {};
  }

  /// The second process is no reason to end the first.
  Status leave_torch_out(const Status& reason) {
    decline("the second process", reason.message());
    torch_names_.clear();
    return {};
  }

  Status time_all() {
    const Shape& shape = sampled_.whole->shape;
    output_.progress("timing " + shape.name);
    if (Status s = time_in_turns(); !s.ok()) return s;
    for (const PerfRecord& record : results_.perf) {
      if (record.shape.name == shape.name && record.method == plan_.methods.front()) {
        output_.line(perf_line(record));
      }
    }
    return {};
  }

  Status time_in_turns() {
    std::vector<TimedVariant> timed;
    for (const Contestant& c : contestants_) timed.push_back({c.variant, &c.judged});
    if (timed.empty()) return {};
    TimingPlan plan;
    plan.methods = plan_.methods;
    plan.output = plan_.output;
    plan.lse = plan_.lse;
    plan.warmup_iters = launches_for(sampled_.whole->shape, plan_.warmup_iters);
    plan.timed_iters = plan.max_timed_iters =
        launches_for(sampled_.whole->shape, plan_.timed_iters);
    plan.graph_iters = graph_samples_for(plan.timed_iters);
    if (torch_ != nullptr) {
      plan.after_repetition = [&](Method method, const Repetition& taken) {
        time_torch(method, taken, plan.warmup_iters);
      };
    }
    auto results = time_variants(std::move(timed), *sampled_.whole, device_, plan);
    if (!results.ok()) return results.status();
    for (const auto& [variant, status] : results->failed) {
      record(error_record(*sampled_.whole, *variant, status));
      results_.ours_pass = results_.ours_pass && is_peer(variant->name);
    }
    for (PerfRecord& record : results->records) {
      record.lse = contestant(record.variant)->writes_lse;
    }
    if (!torch_records_.empty()) {
      for (PerfRecord& record : results->records) record.interleaved = true;
    }
    for (auto* records : {&results->records, &torch_records_}) {
      std::move(records->begin(), records->end(), std::back_inserter(results_.perf));
    }
    return {};
  }

  struct Contestant;
  const Contestant* contestant(std::string_view name) const {
    const auto found =
        std::find_if(contestants_.begin(), contestants_.end(),
                     [&](const Contestant& each) { return each.variant->name == name; });
    return found == contestants_.end() ? nullptr : &*found;
  }

  /// The second process's repetition beside one of ours.
  void time_torch(Method method, const Repetition& taken, int warmup) {
    constexpr int kWarmUpsOfTurn = 3;
    const bool first = taken.first_sample == 0;
    const std::vector<std::string> names = torch_names_;
    for (const std::string& name : names) {
      if (first) drop_series(name, method);
      // A graph of many launches warms itself up.
      const int of_turn = method == Method::kGraphWarm ? 0 : std::min(warmup, kWarmUpsOfTurn);
      auto samples = torch_->time(name, method, first ? warmup : of_turn, taken.samples);
      if (!samples.ok()) {
        decline(name, std::string(name_of(method)) + ": " + samples.status().message());
        std::erase(torch_names_, name);
        for (const Method each : kTimedMethods) drop_series(name, each);
        continue;
      }
      PerfRecord& record = torch_record(name, method, warmup);
      record.samples_us.insert(record.samples_us.end(), samples->begin(), samples->end());
      record.repetitions.push_back(taken);  // with the clock at its beginning
    }
  }

  PerfRecord& torch_record(const std::string& name, Method method, int warmup) {
    const auto same =
        std::find_if(torch_records_.begin(), torch_records_.end(),
                     [&](const PerfRecord& r) { return r.variant == name && r.method == method; });
    if (same != torch_records_.end()) return *same;
    PerfRecord& made = torch_records_.emplace_back();
    made.shape = sampled_.whole->shape;
    made.seed = plan_.seed;
    made.variant = name;
    made.method = method;
    made.warmup_iters = warmup;
    made.interleaved = true;  // by repetitions
    return made;
  }

  /// Half a series is none.
  void drop_series(const std::string& name, Method method) {
    std::erase_if(torch_records_, [&](const PerfRecord& record) {
      return record.variant == name && record.method == method;
    });
  }

  struct Contestant {
    const Variant* variant;
    std::vector<std::uint16_t> judged;
    bool writes_lse;
  };

  const ContestPlan& plan_;
  const Device& device_;
  TorchPeers* torch_;
  const Output& output_;
  ContestResults& results_;
  SampledCase sampled_;
  std::vector<Contestant> contestants_;
  std::vector<std::string> torch_names_;
  std::vector<PerfRecord> torch_records_;
};

double median_of(const PerfRecord& record) { return summarise(record.samples_us).p50; }

}  // namespace

int launches_for(const Shape& shape, int asked) {
  constexpr double kSecondsOfSeries = 1.0;
  constexpr double kSlowFlopPerSecond = 3e14;  // below what any of them does on a large shape
  constexpr int kLeast = 20;
  const double seconds = kGraphLaunches * flop_count(shape) / kSlowFlopPerSecond;
  const double fit = kSecondsOfSeries / seconds;
  if (fit >= asked) return asked;
  return std::min(asked, std::max(kLeast, static_cast<int>(fit)));
}

int graph_samples_for(int timed) {
  constexpr int kShare = 5;
  constexpr int kLeast = 10;  // as many repetitions: compare asks for nine
  return std::min(timed, std::max(kLeast, timed / kShare));
}

ContestResults run_contest(const ContestPlan& plan, const Device& device, TorchPeers* torch,
                           const Output& output) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  ContestResults results;
  results.ours_pass = !plan.shapes.empty();
  for (const Shape& shape : plan.shapes) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (plan.max_seconds > 0 && seconds > plan.max_seconds) {
      results.left_out.push_back(shape.name + " is left out: the asked seconds are used up");
      continue;
    }
    const Status status = Match(plan, device, torch, output, results).run(shape);
    release_peer_plans();
    if (status.ok()) continue;
    results.left_out.push_back(shape.name + " is left out: " + status.message());
    results.ours_pass = false;
  }
  return results;
}

std::string contest_tables(const std::vector<PerfRecord>& records, Method method) {
  std::vector<std::string> names;
  std::map<std::string, double> ours;
  for (const PerfRecord& record : records) {
    if (record.method != method) continue;
    if (is_peer(record.variant)) {
      if (std::find(names.begin(), names.end(), record.variant) == names.end()) {
        names.push_back(record.variant);
      }
      continue;
    }
    const double p50 = median_of(record);
    const auto [entry, added] = ours.try_emplace(record.shape.name, p50);
    if (!added) entry->second = std::min(entry->second, p50);
  }
  std::string out;
  for (const std::string& name : names) {
    std::vector<PeerTimes> rows;
    for (const PerfRecord& record : records) {
      if (record.method != method || record.variant != name) continue;
      const auto entry = ours.find(record.shape.name);
      const double mine =
          entry == ours.end() ? std::numeric_limits<double>::quiet_NaN() : entry->second;
      rows.push_back({record.shape.name, median_of(record), mine});
    }
    out += "## " + name + ", " + name_of(method) + "\n\n" + peer_table(name, rows) + "\n";
  }
  return out;
}

}  // namespace fp8_sdpa::bench
