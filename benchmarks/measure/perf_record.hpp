// A timed series, and the methods that it can be timed by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/statistics/repetitions.hpp"
#include "benchmarks/statistics/stats.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// How a launch was timed.
enum class Method : std::uint8_t {
  kEventsWarm,      ///< CUDA events around each launch, inputs in L2 from the launch before
  kEventsCold,      ///< the same, L2 flushed before each launch
  kGraphWarm,       ///< per launch of a CUDA graph that holds several, inputs in L2
  kQueuedWarm,      ///< events around each launch, all three queued while the stream is held
  kQueuedRotating,  ///< the same on copies of the inputs in turns, together larger than L2
};
inline constexpr Method kMethods[] = {Method::kEventsWarm, Method::kEventsCold, Method::kGraphWarm,
                                      Method::kQueuedWarm, Method::kQueuedRotating};
/// What each is called: by itself; at the end of a series' name in Google Benchmark's files; as the
/// counter of its median beside a launch's own times, or nothing.
struct MethodNames {
  const char *name, *suffix, *counter;
};
inline constexpr MethodNames kMethodNames[] = {{"events_l2_warm", "", ""},
                                               {"events_l2_cold", "/cold", ""},
                                               {"graph_l2_warm", "/graph", "graph_us"},
                                               {"queued_l2_warm", "/queued", "queued_us"},
                                               {"queued_rotating", "/rotating", "rotating_us"}};
constexpr const MethodNames& names_of(Method method) {
  return kMethodNames[static_cast<std::size_t>(method)];
}
constexpr const char* name_of(Method method) { return names_of(method).name; }
/// name_of() each of kMethods.
std::vector<std::string> method_names();

/// One timed series, in microseconds.
struct PerfRecord {
  reference::Shape shape;
  std::uint64_t seed = 0;
  std::string variant;
  Method method = Method::kEventsWarm;
  int warmup_iters = 0;
  std::vector<double> samples_us;
  bool interleaved = false;             ///< sampled in turns with other variants
  std::vector<Repetition> repetitions;  ///< of samples_us, in time's order
  std::optional<bool> lse = {};         ///< whether a launch writes one, where that is known
};

/// The median of the SM clocks of all repetitions: what the run's samples are expected at.
std::optional<double> expected_clock(const std::vector<PerfRecord>& records);

/// Floating-point operations of one launch: 4 * B * H * S_q * S_kv * D, halved for a causal mask.
double flop_count(const reference::Shape& shape);

/// flop_count() in the time of one launch, in TFLOP/s.
double tflops(const reference::Shape& shape, double us);

}  // namespace fp8_sdpa::bench
