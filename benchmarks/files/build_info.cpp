#include "benchmarks/files/build_info.hpp"

#include "benchmarks/command/paths.hpp"
#include "cmake/tools/source_state.hpp"
#include "dispatch/toggles.hpp"
#include "fp8_sdpa_provenance.hpp"
#include "reference/formats/text.hpp"

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

Status check_sources(const Environment& environment) {
  const char* sources = environment("SDPA_SOURCES");
  const std::string root = sources == nullptr ? default_source_folder() : sources;
  const std::string state = build::source_state(root);
  if (state == provenance::kSourceState || (state.empty() && sources == nullptr)) return {};
  return invalid_argument("this binary was built from other sources than there are now in " +
                          reference::one_line(root) + ": build it again, without --no-build");
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
