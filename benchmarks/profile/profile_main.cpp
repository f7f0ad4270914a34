// fp8_sdpa_profile SHAPE SEED ITERS: a shape under Nsight Compute, with a verdict. Exit code 0:
// profiled; 2: bad usage, or no profile can be taken here.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>

#include "benchmarks/profile/profile.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/run/runner_options.hpp"
#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/command/tool.hpp"

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
  const auto resolved = resolve(options, host_executor(), process_environment());
  if (!resolved.ok()) return resolved.status();
  if (resolved->shapes.size() != 1 || resolved->variants.size() != 1) {
    return invalid_argument("shape " + reference::one_line(request.shape) + " and variant " +
                            reference::one_line(request.variant) +
                            ": expected one of each, not a glob or a list");
  }
  request.shape = resolved->shapes.front().name;
  request.variant = resolved->variants.front()->name;
  return {};
}

int run(const CommandLine& line, ProfileRequest request) {
  if (Status s = check(request); !s.ok()) return refuse(line, s.message());
  const std::string asked = request.ncu;
  request.ncu = find_program(asked);
  if (request.ncu.empty()) {
    return refuse(line, reference::one_line(asked) +
                            " (Nsight Compute) is not found, so no profile and no verdict of " +
                            request.shape + ": expected it on PATH or by --ncu");
  }
  if (request.folder.empty()) {
    request.folder = "results/" + folder_name(std::time(nullptr)) + "-" + request.shape + "-ncu";
  }
  const auto directory = ResultDirectory::open(request.folder);
  if (!directory.ok()) return refuse(line, directory.status().message());
  request.runner = runner_path();
  const auto verdict = profile(request);
  if (!verdict.ok()) return refuse(line, verdict.status().message());
  std::printf("%s on %s: %s (%s)\nnext: %s\nprofile: %s\n", request.variant.c_str(),
              request.shape.c_str(), verdict->verdict.c_str(), verdict->because.c_str(),
              verdict->next_step.c_str(), request.folder.c_str());
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
  return run_guarded(line, [&] { return run(line, request); });
}
