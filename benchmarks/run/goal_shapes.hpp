// The goal shapes of Hopper: problems that forward() is timed on with its own choice of variant
// ("auto"), and the gates that stand before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/run/gated_cases.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// Attention of (batch, heads, seq, head_dim), timed without and with the causal mask. Of keys
/// there are as many heads and rows as of queries, unless they are named.
struct GoalSize {
  const char* name;
  int batch, heads;
  std::int64_t seq;
  int head_dim;
  int heads_kv = heads;
  std::int64_t seq_kv = seq;
};

/// Every goal shape: those that ask for throughput first, then those that ask for latency.
std::span<const GoalSize> goal_sizes();

/// The goal shape as a shape: named as it is, with "_causal" behind it under that mask; unit-normal
/// inputs, so that every (batch, head) has descales of its own.
reference::Shape shape_of(const GoalSize& goal, Mask mask);

/// Launches of goal shapes that have passed their gates, in bf16, with the library's choice of
/// variant and the first seed of the configuration.
class GatedGoals {
 public:
  GatedGoals(reference::Config config, Device device)
      : config_(std::move(config)), device_(std::move(device)) {}

  /// A plan() of the shape that has passed all gates, of its whole output, or of sampled rows where
  /// it has too many scores for the oracle (reference/judge/sampled.hpp). Otherwise the failed
  /// gate, or why it could not be judged. The last shape's verdict is kept.
  Result<GatedLaunch> launch(const reference::Shape& shape);

 private:
  Result<GatedLaunch> judge(const reference::Shape& shape);
  /// The shape's inputs and codes; those that are there where only the mask is another.
  const reference::CaseData& drawn(const reference::Shape& shape);

  reference::Config config_;
  Device device_;
  std::string name_;  ///< of the last shape
  Status refused_;    ///< what became of it, with last_
  std::shared_ptr<const GatedLaunch> last_;
  std::optional<reference::CaseData> drawn_;  ///< of the last shape that was judged by its rows
};

/// shape_of() every goal shape, without and with the causal mask.
std::vector<reference::Shape> goal_shapes();

}  // namespace fp8_sdpa::bench
