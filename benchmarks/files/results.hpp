// The three result files as JSON documents. schemas/ states their form.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/device_info.hpp"
#include "benchmarks/files/ptxas_report.hpp"
#include "benchmarks/files/qkv_source.hpp"
#include "benchmarks/measure/perf_record.hpp"
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
inline constexpr const char* kEliteFile = "elite.json";              ///< of fp8_sdpa_elite
inline constexpr const char* kProfileVerdictFile = "verdict.json";   ///< of fp8_sdpa_profile
inline constexpr const char* kCeilingsFile = "ceilings.json";        ///< of fp8_sdpa_ceilings
inline constexpr const char* kSweepFile = "sweep.json";              ///< of fp8_sdpa_sweep
inline constexpr const char* kServingFile = "serving.json";          ///< of fp8_sdpa_serving
inline constexpr const char* kUnquantisedFile = "unquantised.json";  ///< peers --unquantised
inline constexpr const char* kBesideFile = "beside_ours.json";  ///< of FlashAttention-3's driver
inline constexpr const char* kKillMatrixFile = "kill_matrix.json";  ///< of tests/wrong
/// What the name of another library's kernel begins with in a result file.
inline constexpr std::string_view kPeerPrefix = "peer/";
constexpr bool is_peer(std::string_view variant) { return variant.starts_with(kPeerPrefix); }

class ResultDirectory;

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
  std::shared_ptr<const QkvSource> source = nullptr;  ///< of tensors that came from a file
};

/// build_meta.json. A kernel's smem_bytes are the static ones of the report and the dynamic ones
/// that its variant's launch asks for.
nlohmann::json build_meta(const RunInfo& run, const PtxasReport& ptxas,
                          std::span<const Variant> table);

/// correctness_summary.json. all_pass is false where there are no records.
nlohmann::json correctness_summary(const RunInfo& run,
                                   const std::vector<CorrectnessRecord>& records);

/// perf_baseline.json. Repetitions below the expected clock of all records are marked.
nlohmann::json perf_baseline(const RunInfo& run, const std::vector<PerfRecord>& records);

/// Writes the files of a run: all three, or without perf_baseline.json where `perf` is null.
Status write_results(ResultDirectory& directory, const RunInfo& run, const PtxasReport& ptxas,
                     const std::vector<CorrectnessRecord>& correctness,
                     const std::vector<PerfRecord>* perf);

}  // namespace fp8_sdpa::bench
