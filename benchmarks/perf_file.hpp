// Reads measured times back: perf_baseline.json of the runner, or what Google Benchmark wrote.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/paths.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Times of one series, in microseconds per launch.
struct SeriesTimes {
  double p50 = 0;
  double p90 = 0;
  double mean = 0;
  double std = 0;
};

/// One (variant, shape, method), measured.
struct PerfSeries {
  std::string variant;
  std::string shape;
  std::string method;  ///< as name_of(Method) has it
  std::string size;    ///< "B=1 H=8 ..."; empty where the file does not say
  SeriesTimes times;
  bool interleaved = false;
  std::string gate_failure;  ///< empty: every gate of every seed passed
};

/// A file of measured times, and what the gates said of them.
struct PerfFile {
  std::string path;
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

/// Reads a file, or the perf_baseline.json of a folder. kInvalidArgument, in one line with the
/// file and the place, for what is neither kind, of another schema version, not of its schema,
/// holds one series twice or none at all.
///
/// The verdict on a perf_baseline.json is the correctness_summary.json's beside it, which must be
/// of the same run. Google Benchmark's file is its own: a series that failed ended with an error
/// there. Of its repetitions the times are averaged; host_executor/ series are left out.
Result<PerfFile> read_perf_file(const std::string& path,
                                const std::string& schema_folder = default_schema_folder());

}  // namespace fp8_sdpa::bench
