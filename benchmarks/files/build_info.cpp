#include "benchmarks/files/build_info.hpp"

#include "dispatch/toggles.hpp"
#include "fp8_sdpa_provenance.hpp"

namespace fp8_sdpa::bench {

BuildInfo this_build() {
  return {
      .git_sha = provenance::kGitSha,
      .git_branch = provenance::kGitBranch,
      .git_dirty = provenance::kGitDirty,
      .compiler = provenance::kCompiler,
      .cuda_compiler = provenance::kCudaCompiler,
      .flags = provenance::kFlags,
      .cuda_flags = provenance::kCudaFlags,
      .cuda_archs = provenance::kCudaArchs,
      .build_type = provenance::kBuildType,
      .sanitizer = provenance::kSanitizer,
      .toggles = configured_toggles(),
      .debug_print = FP8_SDPA_DEBUG_PRINT != 0,
  };
}

std::string describe(const Toggles& toggles) {
  std::string out;
  for (const ToggleName& toggle : kToggleNames) {
    out += (out.empty() ? "" : " ") + std::string(toggle.variable) +
           (toggles.*toggle.member ? "=1" : "=0");
  }
  return out;
}

}  // namespace fp8_sdpa::bench
