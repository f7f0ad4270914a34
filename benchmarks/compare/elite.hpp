// The elite: the best variants so far, by their speed-up over a baseline that was measured beside
// them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/files/perf_file.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

inline constexpr std::size_t kEliteSize = 3;
inline constexpr double kEliteGain = 1.03;   ///< what a newcomer must gain over the third
inline constexpr int kEliteRegressions = 2;  ///< as many shapes slower than the baseline: out

struct EliteEntry {
  std::string variant;
  double speedup = 0;                    ///< geometric mean over the shapes
  std::map<std::string, double> shapes;  ///< speed-up of each
  std::string timestamp;                 ///< of the run that measured it
  std::string commit;
};

/// What results/elite.json holds, fastest first. Speed-ups over different baselines, shapes,
/// methods or devices cannot be ranked together, so it is of one of each.
struct Elite {
  std::string baseline;
  std::string method;
  std::string backend;
  std::string device;
  std::vector<EliteEntry> entries;
};

/// Reads an elite file; one without entries where there is no file. kInvalidArgument, in one line,
/// for one that is malformed.
Result<Elite> read_elite(const std::string& path,
                         const std::string& schema_folder = default_schema_folder());

/// An elite, and a line for each variant of the file on what became of it.
struct EliteUpdate {
  Elite elite;
  std::vector<std::string> notes;
};

/// Ranks the variants of a file, measured by `method`, among those of `elite`. A variant that is in
/// it already takes its new figures. A newcomer is dropped if a gate failed, a shape is missing, it
/// is slower than the baseline on kEliteRegressions shapes or more, or, where the elite is full, it
/// gains less than kEliteGain over the third. kInvalidArgument where the baseline is not in the
/// file, or `elite` is of another baseline, method, device or set of shapes.
Result<EliteUpdate> update_elite(const Elite& elite, const PerfFile& file,
                                 const std::string& baseline, const std::string& method);

/// elite.json.
nlohmann::json to_json(const Elite& elite);

}  // namespace fp8_sdpa::bench
