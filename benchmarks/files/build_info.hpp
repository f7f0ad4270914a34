// What this binary was built from, and with.
#pragma once

#include <string>

#include "benchmarks/command/selection.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

struct BuildInfo {
  std::string git_sha;
  std::string git_branch;
  bool git_dirty = false;
  std::string compiler;
  std::string cuda_compiler;  ///< "none" in a build without device code
  std::string flags;
  std::string cuda_flags;
  std::string cuda_archs;
  std::string build_type;
  std::string sanitizer;
  Toggles toggles;  ///< the configured ones
  bool debug_print = false;
};

/// This build, as of when it was made.
BuildInfo this_build();

/// kInvalidArgument where this binary was built from other sources than there are now: in
/// SDPA_SOURCES, which the launcher sets to its tree, or, without it, where they were then (nothing
/// is said where none are left). What it found of a kernel would be true of another one.
Status check_sources(const Environment& environment);

/// "USE_KV_LUT=0 USE_CP_ASYNC=1 ...", the six toggles.
std::string describe(const Toggles& toggles);

}  // namespace fp8_sdpa::bench
