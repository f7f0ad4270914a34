// fp8_sdpa_profile SHAPE SEED ITERS: a shape under Nsight Compute, with a verdict. Exit code 0:
// profiled; 2: bad usage, or no profile can be taken here.
#include <cstdio>
#include <filesystem>
#include <string>

#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/profile/profile.hpp"
#include "benchmarks/run/runner_options.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

/// fp8_sdpa_run, as it lies beside this program.
std::string runner_path() {
  std::error_code ignored;
  return (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "fp8_sdpa_run")
      .string();
}

/// Checks shape, seed and variant as the runner does; fills in the variant's full name.
Status check(ProfileRequest& request) {
  RunnerOptions options;
  options.config = request.config;
  options.shapes = request.shape;
  options.seeds = std::to_string(request.seed);
  options.variants = request.variant;
  const auto resolved = resolve_one(options, host_executor(), process_environment());
  if (!resolved.ok()) return resolved.status();
  request.shape = resolved->shapes.front().name;
  request.variant = resolved->variants.front()->name;
  return {};
}

Result<int> run(ProfileRequest request) {
  if (Status s = check(request); !s.ok()) return s;
  const std::string asked = request.ncu;
  request.ncu = find_program(asked);
  if (request.ncu.empty()) {
    return invalid_argument(reference::one_line(asked) +
                            " (Nsight Compute) is not found, so no profile and no verdict of " +
                            request.shape + ": expected it on PATH or by --ncu");
  }
  request.folder = folder_or_default(request.folder, request.shape + "-ncu");
  const auto directory = ResultDirectory::open_empty(request.folder);
  if (!directory.ok()) return directory.status();
  request.runner = runner_path();
  const auto verdict = profile(request);
  if (!verdict.ok()) return verdict.status();
  std::printf("%s on %s: %s (%s)\nnext: %s\nprofile: %s\n", request.variant.c_str(),
              request.shape.c_str(), verdict->verdict.c_str(), verdict->because.c_str(),
              verdict->next_step.c_str(), reference::one_line(request.folder).c_str());
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMaxIters = 1000;
  CommandLine line(
      "Profiles a shape's timed launches with Nsight Compute and says what binds them.",
      "fp8_sdpa_profile");
  ProfileRequest request;
  request.ncu = "ncu";
  request.config = default_config_path();
  line.add("SHAPE", request.shape, "A shape of the configuration").required();
  line.add("SEED", request.seed, "A seed of the configuration").required();
  line.add("ITERS", request.iters, "Launches to profile").required().between(1, kMaxIters);
  line.add("--variant", request.variant, "Default: the variant that the toggles pick");
  line.add("--config", request.config, "Configuration file");
  line.add("--out", request.folder, "Default: results/<YYYYMMDD-HHMMSS>-<shape>-ncu");
  line.add("--ncu", request.ncu, "Nsight Compute's ncu");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(request); });
}
