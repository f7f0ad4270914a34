// Reads what "ptxas -v" prints about each kernel.
#pragma once

#include <string>
#include <vector>

namespace fp8_sdpa::build {

/// One kernel as compiled for one architecture.
struct KernelUsage {
  std::string kernel;   ///< mangled name
  std::string variant;  ///< the name of its tag type; empty for a kernel without one
  std::string arch;     ///< such as sm_90a
  int registers = 0;    ///< per thread
  int static_smem_bytes = 0;
  int spill_stores = 0;  ///< bytes
  int spill_loads = 0;   ///< bytes
};

/// The variant in a mangled kernel name: the identifier after the namespace "tag", so "stage_c_lut"
/// in ..._N8fp8_sdpa7stage_c3tag11stage_c_lutE...; empty where there is none.
std::string variant_of(const std::string& mangled);

/// Parses the ptxas lines of one object file. On failure returns false and sets `error` to one
/// line: a kernel without its register line.
bool parse_ptxas_log(const std::string& text, std::vector<KernelUsage>* kernels,
                     std::string* error);

/// The report, as a JSON array with one object per line.
std::string to_json(const std::vector<KernelUsage>& kernels);

}  // namespace fp8_sdpa::build
