// What the compiler said about every kernel, as the build wrote it down.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// One kernel on one architecture.
struct PtxasEntry {
  std::string kernel;   ///< mangled
  std::string variant;  ///< empty where the kernel is no variant
  std::string arch;     ///< such as "sm_90a"
  int registers = 0;    ///< per thread
  std::size_t static_smem_bytes = 0;
  std::size_t spill_stores = 0;  ///< bytes
  std::size_t spill_loads = 0;   ///< bytes
};

/// The report, or a note that says why there is none.
struct PtxasReport {
  std::vector<PtxasEntry> entries;
  std::string note;
};

/// Parses the report's text; `path` is for messages.
Result<PtxasReport> parse_ptxas_report(const std::string& text, const std::string& path);

/// Reads the report at `path`. A file that is not there is no error: a build without nvcc has none,
/// and the note says so.
Result<PtxasReport> load_ptxas_report(const std::string& path);

/// load_ptxas_report() of the file that this build writes.
Result<PtxasReport> load_ptxas_report();

}  // namespace fp8_sdpa::bench
