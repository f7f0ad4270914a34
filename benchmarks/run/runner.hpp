// The main job: judge every case, then time what passed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "benchmarks/run/runner_options.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::bench {

/// Where a run's words go: lines for people, and progress on long work.
struct Output {
  std::function<void(const std::string&)> line;
  std::function<void(const std::string&)> progress;
};

/// A case to come: what it is, and how its data is made when its turn is there.
struct PendingCase {
  reference::Shape shape;
  std::uint64_t seed = 0;
  std::function<Result<std::shared_ptr<const reference::CaseData>>()> make;
  std::shared_ptr<const QkvSource> source = nullptr;  ///< of tensors that came from a file
  std::vector<const Variant*> variants = {};
  Dtype dtype = Dtype::kE4M3;  ///< of its codes
  Granularity granularity = Granularity::kHead;
  /// What its LSE is short of that of a file's tensors, of which K was smoothed; else empty.
  std::vector<float> lse_of_means = {};

  /// For who asks what serves it.
  Problem problem() const;
};

/// The cases of a request: every (shape, seed), or the one of a file of tensors; with plan()'s own
/// choice where it is asked for, kUnsupported where there is none.
Result<std::vector<PendingCase>> pending_cases(const RunRequest& request,
                                               const RunnerOptions& options);

/// A (shape, variant) that a run leaves out, and why.
struct Declined {
  std::string shape;
  const Variant* variant;
  std::string reason;
};

/// Asks every variant whether it serves each shape. kUnsupported where no variant serves one.
Result<std::vector<Declined>> declined_pairs(const RunRequest& request,
                                             const std::vector<PendingCase>& cases);

/// What a run found.
struct RunResults {
  std::vector<CorrectnessRecord> correctness;
  std::vector<PerfRecord> perf;
  bool all_pass = false;
};

/// Judges all cases, and, where the request says so, times each variant on each shape whose every
/// seed it passed (with the first seed's inputs, by every method, interleaved with the others). A
/// kernel that ends in an error fails its "executed" gate; a Status means that the run could not go
/// on (out of memory, say).
Result<RunResults> run_cases(const RunRequest& request, const std::vector<PendingCase>& cases,
                             const std::vector<Declined>& declined, const Output& output);

/// The record of a variant whose kernel ended in an error instead of a result: every error is
/// infinite and the gate "executed" fails with the message.
CorrectnessRecord error_record(const reference::CaseData& data, const Variant& variant,
                               const Status& status);

}  // namespace fp8_sdpa::bench
