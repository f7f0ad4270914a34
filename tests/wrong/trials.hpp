// What a wrong kernel is put through: the gates of check() on a list of input families and shapes,
// small enough that a hundred kernels take a minute.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/executor_options.hpp"
#include "reference/judge/check.hpp"
#include "reference/oracle/case.hpp"
#include "tests/wrong/peers.hpp"

namespace fp8_sdpa::wrong {

/// One case and how it is run.
struct Trial {
  std::string name;
  std::shared_ptr<const reference::CaseData> data;
  reference::CheckOptions options;
  Schedule schedule = Schedule::kFifo;  ///< of the executor: also which block begins first
  Asynchrony asynchrony = Asynchrony::kLate;
  bool for_peers = false;  ///< unit-normal inputs, as the peers' tests draw them
  std::uint64_t seed = 1;  ///< of the schedule
  int os_threads = 1;
};

/// Trials of what kernels serve, each of what some do; made once per process.
const std::vector<Trial>& kernel_trials();
/// Small trials under every schedule, for barriers, waits and commits taken out.
const std::vector<Trial>& race_trials();
/// Trials with masks, shared KV heads and long sequences, for faults of the rounding model.
const std::vector<Trial>& model_trials();

/// Computes the budgets that trials are judged by: once, before a fork, not once in each child.
void make_budgets(const std::vector<Trial>& trials);

/// One gate's verdict in one trial.
struct Finding {
  std::string trial;
  std::string gate;  ///< "executor": the kernel could not be run to its end
  double value = 0;
  double threshold = 0;
  bool pass = false;
  std::string detail;
};

/// What became of a kernel.
struct Outcome {
  std::vector<Finding> findings;
  std::vector<PeerVerdict> peers;

  /// Asks the peers' gates about an output; a peer passes what it passes in every trial.
  void ask(const std::vector<float>& o, const reference::CaseData& data);
  bool killed() const;
  /// The failed finding with the largest value / threshold; null if there is none.
  const Finding* strongest() const;
};

/// How far to go with a kernel that has failed a trial.
enum class Extent : bool {
  kFirstFailure,  ///< it is rejected: enough
  kAllTrials,     ///< every gate's verdict is wanted
};

/// Runs the trials on variants of the host executor: those that each serves.
Outcome try_variants(const std::vector<Variant>& variants, const std::vector<Trial>& trials,
                     Extent extent);

/// An output, and the rounding model's error that it is judged by, without a device.
struct Attended {
  std::vector<float> o;
  std::vector<float> lse;
};
/// Judges outputs of a function of the case by the gates that need no device.
Outcome try_function(const std::function<Attended(const reference::CaseData&)>& function,
                     bool fp8_p, const std::vector<Trial>& trials);

/// How far beyond its threshold a failed gate is; infinite for verdicts without a number.
double margin(const Finding& finding);

}  // namespace fp8_sdpa::wrong
