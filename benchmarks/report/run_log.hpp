// The run log: what a run's result files say, as Markdown.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

struct RunLogRequest {
  std::vector<std::string> folders;  ///< of the runner or of a profile
  std::string elite;                 ///< the elite file; left out where it is not there
  std::string baseline;              ///< the variant whose times the others are measured by
  std::string schema_folder = default_schema_folder();
};

/// The text. kInvalidArgument, in one line with the file, where a folder holds neither kind of
/// result, or a file is malformed.
Result<std::string> run_log(const RunLogRequest& request, std::time_t when);

/// Writes `text` as `root`/run_YYYYMMDD_HHMM.md (UTC; _2, _3, ... behind it where that is taken)
/// and returns the path.
Result<std::string> write_run_log(const std::string& root, const std::string& text,
                                  std::time_t when);

}  // namespace fp8_sdpa::bench
