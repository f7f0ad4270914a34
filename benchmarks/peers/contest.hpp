// Ours against peers, shape by shape: the same tensors, judged, then timed, interleaved.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "benchmarks/measure/timing.hpp"
#include "benchmarks/peers/peer.hpp"
#include "benchmarks/peers/torch_peers.hpp"
#include "benchmarks/run/runner.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// What to compare, and for how long.
struct ContestPlan {
  reference::Config config;
  std::vector<reference::Shape> shapes;
  std::uint64_t seed = 0;
  std::vector<const Variant*> variants;  ///< empty: the library's own choice for each shape
  int timed_iters = 0;
  int warmup_iters = 0;
  std::span<const Method> methods = kTimedMethods;
  Dtype output = Dtype::kHalf;     ///< of ours
  std::optional<LseSum> lse = {};  ///< all write one, ours of that sum; who cannot is declined
  /// Scores of a shape that are judged (sample_case()), and whether by error budgets alone, which
  /// know how few rows they are of.
  std::int64_t judged_scores = reference::kWholeScores;
  bool budgets_only = false;
  /// Shapes that have not begun by then are left out; 0: none is.
  double max_seconds = 0;
  std::string scratch;  ///< a folder for files that are passed to the second process
};

struct ContestResults {
  std::vector<CorrectnessRecord> correctness;
  std::vector<PerfRecord> perf;
  bool ours_pass = false;             ///< every variant of ours, at least one on each shape
  std::vector<std::string> left_out;  ///< a line for each shape that was not measured
};

/// Launches that are timed, and that warm up, of a shape: as asked, but no more than take about a
/// second of a GPU in a graph's series. At least 20 of each.
int launches_for(const reference::Shape& shape, int asked);

/// Samples of a graph's series where others have `timed`: a fifth, at least 10, at most `timed`.
int graph_samples_for(int timed);

/// Runs it on a CUDA device; `torch` may be null. A peer that fails a gate is reported as failing
/// it and timed all the same; a variant of ours is not timed. The second process is timed
/// after each repetition of this one. A shape on which the run cannot go on is left out, with the
/// reason, and counts as one that ours did not pass.
ContestResults run_contest(const ContestPlan& plan, const Device& device, TorchPeers* torch,
                           const Output& output);

/// For each peer a table of its times and of ours, with a verdict: the fastest variant of ours on
/// each shape, by `method`.
std::string contest_tables(const std::vector<PerfRecord>& records, Method method);

}  // namespace fp8_sdpa::bench
