// Times launches on a CUDA device with CUDA events.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "benchmarks/measure/perf_record.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa::bench {

/// Launches that a graph of Method::kGraphWarm holds; its time is divided by this.
inline constexpr int kGraphLaunches = 20;

/// Times one plan by one method, on a stream of its own.
///
/// kEventsWarm: event, launch, event, and a wait for the second. The time holds the launch's own
///   latency too (some 4 us for an empty kernel), as a user's single call does.
/// kEventsCold: the same after a buffer of twice the L2 cache was overwritten, outside the events
///   and waited for, so that only the state of L2 differs.
/// kGraphWarm: events around a CUDA graph of kGraphLaunches launches, divided by their number.
/// kQueuedWarm: event, launch, event, queued while a kernel holds the stream (hold.hpp): the host's
///   part is over before the first event, and the time is the device's alone.
/// kQueuedRotating: the same on rotating copies of the inputs (rotation.hpp), which together are
///   twice the L2 cache; on the inputs themselves where they do not fit into it.
class LaunchTimer {
 public:
  /// kUnsupported in a build without device code or for a plan of the host executor.
  static Result<LaunchTimer> make(const Plan& plan, Method method);
  /// Times whatever a function puts on the stream, by Method::kQueuedWarm or kGraphWarm.
  static Result<LaunchTimer> make(std::function<Status(CUstream_st* stream)> launch,
                                  Method method = Method::kQueuedWarm);

  LaunchTimer(LaunchTimer&&) noexcept;
  LaunchTimer& operator=(LaunchTimer&&) noexcept;
  ~LaunchTimer();

  /// `launches` plain launches, and a wait for them. For a graph, as many graph launches as hold at
  /// least that number.
  Status warm_up(int launches);

  /// One timed sample: microseconds per launch.
  Result<double> sample_us();

 private:
  struct Impl;
  explicit LaunchTimer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The medians of `samples` timings of each launch, one of each in turn, after `warmup` of each.
Result<std::vector<double>> time_in_turns(
    const std::vector<std::function<Status(CUstream_st* stream)>>& launches, Method method,
    int warmup, int samples);

/// `samples` timings of one plan in microseconds, after `warmup` launches. Many plans, in turns and
/// with looks at their outputs: measurement.hpp.
Result<std::vector<double>> time_launches(const Plan& plan, Method method, int warmup, int samples);

}  // namespace fp8_sdpa::bench
