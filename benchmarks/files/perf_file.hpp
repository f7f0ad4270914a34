// Reads measured times back: perf_baseline.json of the runner, or what Google Benchmark wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// Times of one series, in microseconds per launch.
struct SeriesTimes {
  double p50 = 0;
  double p90 = 0;
  double mean = 0;
  double std = 0;
};

/// One repetition of a series: what a statistical test counts as one observation.
struct RepetitionTimes {
  SeriesTimes times;
  std::optional<double> sm_clock_mhz;
  std::vector<double> samples_us;  ///< empty in Google Benchmark's file
};

/// One (variant, shape, method), measured.
struct PerfSeries {
  std::string variant;
  std::string shape;
  std::string method;      ///< as name_of(Method) has it
  reference::Shape sizes;  ///< and the mask; a batch of 0 where the file does not say
  SeriesTimes times;
  double tflops = 0;  ///< at the median: flop_count() per second; 0 where the file does not say
  std::optional<std::pair<double, double>> interval;  ///< 95 % of the median
  bool interleaved = false;
  std::vector<RepetitionTimes> repetitions;  ///< in time's order
  std::int64_t samples = 0;
  std::int64_t marked_samples = 0;  ///< taken below the expected clock (repetitions.hpp)
  std::string gate_failure;         ///< empty: every gate of every seed passed
};

/// A file of measured times, and what the gates said of them.
struct PerfFile {
  std::string path;
  bool of_google_benchmark = false;  ///< else a perf_baseline.json
  std::string backend;
  std::string device;  ///< its name; empty on the host backend
  std::string timestamp;
  std::string commit;  ///< "0123456789ab", with " (dirty)" where it was
  std::vector<PerfSeries> series;

  const PerfSeries* find(const std::string& variant, const std::string& shape,
                         const std::string& method) const;
  /// In the order of the file.
  std::vector<std::string> variants() const;
  /// Shapes of a variant's series by `method`, in the order of the file.
  std::vector<std::string> shapes(const std::string& variant, const std::string& method) const;
};

/// The median of a series' known SM clocks; empty where there is none.
std::optional<double> sm_clock_of(const PerfSeries& series);

/// Reads a file of perf_baseline.json's form, without a verdict on it: `gate_failure` stays empty.
/// Refusals as of read_perf_file().
Result<PerfFile> read_times(const std::string& path, const std::string& schema_folder);

/// Reads a file, or the perf_baseline.json of a folder. kInvalidArgument, in one line with the
/// file and the place, for what is neither kind, of an unknown schema version, not of its schema,
/// holds one series twice or none at all, or repetitions that are not all of their samples.
///
/// The verdict on a perf_baseline.json is the correctness_summary.json's beside it, which must be
/// of the same run. Google Benchmark's file is its own: a series that failed ended with an error
/// there. Of its repetitions the times are averaged; host_executor/ series are left out.
Result<PerfFile> read_perf_file(const std::string& path,
                                const std::string& schema_folder = default_schema_folder());

}  // namespace fp8_sdpa::bench
