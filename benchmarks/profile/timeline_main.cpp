// fp8_sdpa_timeline SHAPE SEED: the phases inside one launch, as a Chrome trace and a table of
// cycles. Exit code 0: written; 1: the variant failed its gates; 2: bad usage, or no GPU.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/text.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/device_info.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/profile/timeline.hpp"
#include "benchmarks/run/gated_cases.hpp"
#include "benchmarks/run/runner_options.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

constexpr const char* kName = "fp8_sdpa_timeline";

struct Arguments {
  std::string shape;
  std::uint64_t seed = 0;
  std::string variant = "stage_c_wmma_pv_swizzle";
  std::string config = default_config_path();
  std::string folder;
  int blocks = 8;
};

std::string traced_names() {
  std::vector<std::string> names;
  for (const auto& variant : traced::traced_variants()) names.emplace_back(variant.name);
  return join(names);
}

/// What a reader must know of the file: where and from which commit its cycles are.
nlohmann::json origin(const Arguments& arguments, const DeviceInfo& info) {
  const BuildInfo build = this_build();
  return {{"variant", arguments.variant},
          {"shape", arguments.shape},
          {"seed", arguments.seed},
          {"device", info.name},
          {"git_sha", build.git_sha},
          {"git_dirty", build.git_dirty},
          {"time_unit", "one nanosecond of the viewer is one cycle of the multiprocessor"}};
}

Result<int> run(Arguments arguments) {
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  const auto* traced = traced::find_traced_variant(arguments.variant);
  if (traced == nullptr) {
    return invalid_argument("variant " + reference::one_line(arguments.variant) +
                            " has no phase log, expected one of " + traced_names());
  }
  RunnerOptions options;
  options.config = arguments.config;
  options.shapes = arguments.shape;
  options.seeds = std::to_string(arguments.seed);
  options.variants = arguments.variant;
  const auto request = resolve_one(options, current_device(), process_environment());
  if (!request.ok()) return request.status();
  if (Status s = require_gpu(request->choice); !s.ok()) return s;
  const Device device = request->choice.device;
  const auto info = describe(device);
  if (!info.ok()) return info.status();

  reference::Config config = request->config;
  config.seeds = {arguments.seed};
  GatedCases cases(config, device);
  const auto launch = cases.launch(*request->variants.front(), request->shapes.front());
  if (!launch.ok()) {
    refuse(kName, launch.status().message());
    return kExitFail;
  }
  const auto timeline = take_timeline(*traced, *launch->workload, launch->judged);
  if (!timeline.ok()) return timeline.status();

  arguments.folder = folder_or_default(arguments.folder, arguments.shape + "-timeline");
  auto directory = ResultDirectory::open_empty(arguments.folder);
  if (!directory.ok()) return directory.status();
  nlohmann::json trace = chrome_trace(*timeline, arguments.blocks);
  trace["otherData"] = origin(arguments, *info);
  if (Status s = directory->write("trace.json", trace); !s.ok()) return s;
  const std::string table = "# " + arguments.variant + " on " + arguments.shape + ", " +
                            info->name + "\n\n" + phase_table(*timeline);
  if (Status s = replace_file(arguments.folder + "/phases.md", table); !s.ok()) return s;
  std::printf("%s\nwritten: %s/trace.json (chrome://tracing, ui.perfetto.dev), phases.md\n",
              table.c_str(), reference::one_line(arguments.folder).c_str());
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMaxBlocks = 1'000'000;
  CommandLine line("Logs the phases inside one launch: a Chrome trace and a table of cycles.",
                   kName);
  Arguments arguments;
  line.add("SHAPE", arguments.shape, "A shape of the configuration").required();
  line.add("SEED", arguments.seed, "A seed of the configuration").required();
  line.add("--variant", arguments.variant, "A variant that has a phase log");
  line.add("--config", arguments.config, "Configuration file");
  line.add("--blocks", arguments.blocks, "Blocks in the trace; the table counts all; default: 8")
      .between(1, kMaxBlocks);
  line.add("--out", arguments.folder, "Default: results/<YYYYMMDD-HHMMSS>-<shape>-timeline");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(arguments); });
}
