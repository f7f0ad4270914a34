// The three result files as JSON documents. benchmarks/schemas/ states their
// form; result_directory.hpp writes them.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/device_info.hpp"
#include "benchmarks/files/ptxas_report.hpp"
#include "benchmarks/statistics/repetitions.hpp"
#include "benchmarks/statistics/stats.hpp"
#include "dispatch/variant.hpp"
#include "reference/config/config.hpp"
#include "reference/judge/check.hpp"

namespace fp8_sdpa::bench {

inline constexpr int kResultSchemaVersion = 1;
/// Of perf_baseline.json. 2: repetitions with their clocks, and the interval of the median.
inline constexpr int kPerfSchemaVersion = 2;
inline constexpr const char* kBuildMetaFile = "build_meta.json";
inline constexpr const char* kCorrectnessFile = "correctness_summary.json";
inline constexpr const char* kPerfFile = "perf_baseline.json";
inline constexpr const char* kEliteFile = "elite.json";             ///< of fp8_sdpa_elite
inline constexpr const char* kProfileVerdictFile = "verdict.json";  ///< of fp8_sdpa_profile
inline constexpr const char* kCeilingsFile = "ceilings.json";       ///< of fp8_sdpa_ceilings
inline constexpr const char* kSweepFile = "sweep.json";             ///< of fp8_sdpa_sweep
inline constexpr const char* kBesideFile = "beside_ours.json";  ///< of FlashAttention-3's driver
inline constexpr const char* kKillMatrixFile = "kill_matrix.json";  ///< of tests/wrong
/// What the name of another library's kernel begins with in a result file.
inline constexpr std::string_view kPeerPrefix = "peer/";
constexpr bool is_peer(std::string_view variant) {
  return variant.starts_with(kPeerPrefix);
}

/// What every file of a run says of it.
struct RunInfo {
  std::time_t start = 0;
  Backend backend = Backend::kHost;
  std::optional<DeviceInfo> device;  ///< none on the host backend
  BuildInfo build;
};

/// What a run that starts now on this device says of itself.
Result<RunInfo> describe_run(const Device& device);

/// What every result file begins with: schema_version, timestamp, backend, git, device.
nlohmann::json result_header(const RunInfo& run);

/// One judged case.
struct CorrectnessRecord {
  reference::Shape shape;
  Dtype dtype = Dtype::kE4M3;
  reference::CaseResult result;
};

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
constexpr const char* name_of(Method method) {
  switch (method) {
    case Method::kEventsWarm: return "events_l2_warm";
    case Method::kEventsCold: return "events_l2_cold";
    case Method::kGraphWarm: return "graph_l2_warm";
    case Method::kQueuedWarm: return "queued_l2_warm";
    case Method::kQueuedRotating: return "queued_rotating";
  }
  return "unknown";
}
/// What a series' name in Google Benchmark's files ends with.
constexpr const char* suffix_of(Method method) {
  switch (method) {
    case Method::kEventsWarm: return "";
    case Method::kEventsCold: return "/cold";
    case Method::kGraphWarm: return "/graph";
    case Method::kQueuedWarm: return "/queued";
    case Method::kQueuedRotating: return "/rotating";
  }
  return "";
}
/// The counter beside a launch's own times that a method's median is called, or nothing.
constexpr const char* counter_of(Method method) {
  switch (method) {
    case Method::kGraphWarm: return "graph_us";
    case Method::kQueuedWarm: return "queued_us";
    case Method::kQueuedRotating: return "rotating_us";
    default: return "";
  }
}
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
  bool interleaved =
      false;  ///< sampled in turns with other variants (benchmarks/measure/interleave.hpp)
  std::vector<Repetition> repetitions;  ///< of samples_us, in time's order
};

/// The median of the SM clocks of all repetitions: what the run's samples are expected at.
std::optional<double> expected_clock(const std::vector<PerfRecord>& records);

/// Floating-point operations of one launch: 4 * B * H * S_q * S_kv * D, halved for a causal mask.
double flop_count(const reference::Shape& shape);

/// build_meta.json. A kernel's smem_bytes are the static ones of the report and the dynamic ones
/// that its variant's launch asks for.
nlohmann::json build_meta(const RunInfo& run, const PtxasReport& ptxas,
                          std::span<const Variant> table);

/// correctness_summary.json. all_pass is false where there are no records.
nlohmann::json correctness_summary(const RunInfo& run,
                                   const std::vector<CorrectnessRecord>& records);

/// perf_baseline.json. Repetitions below the expected clock of all records are marked.
nlohmann::json perf_baseline(const RunInfo& run, const std::vector<PerfRecord>& records);

}  // namespace fp8_sdpa::bench
