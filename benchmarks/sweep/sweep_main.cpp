// fp8_sdpa_sweep: lengths and heads at constant work, and the cost model that fits them; writes
// sweep.json. On several GPUs it deals the sweep points to parts that ctest runs, one GPU each, and
// merges them. Exit code 0: written, or no GPU; 1: a gate failed, or a part; 2: bad usage, no GPU
// where one is required.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/selection.hpp"
#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/sweep/allocation.hpp"
#include "benchmarks/sweep/scaling.hpp"
#include "benchmarks/sweep/sweep.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

constexpr const char* kName = "fp8_sdpa_sweep";

struct Arguments {
  std::string variants = "auto";
  std::string config = default_config_path();
  std::string folder;
  std::string gpus;
  int first = kFirstLevel;
  int last = kLastLevel;
  int step = kLevelStep;
  int head_dim = 64;
  int iters = 100;
  int part = 0;
  int parts = 1;
  bool scaling = false;
};

Result<SweepPlan> resolve(const Arguments& arguments) {
  SweepPlan plan;
  auto config = reference::load_config(arguments.config);
  if (!config.ok()) return config.status();
  plan.config = std::move(*config);
  if (arguments.variants != "auto") {
    auto chosen = select_variants(split_list(arguments.variants), variants());
    if (!chosen.ok()) return chosen.status();
    plan.variants = std::move(*chosen);
  }
  if (arguments.part >= arguments.parts) {
    return invalid_argument("--part: got " + std::to_string(arguments.part) +
                            ", expected less than --parts, " + std::to_string(arguments.parts));
  }
  auto places = sweep_points(arguments.first, arguments.last, arguments.step, arguments.head_dim);
  if (places.empty()) {
    return invalid_argument("--first-level " + std::to_string(arguments.first) +
                            " is past --last-level " + std::to_string(arguments.last));
  }
  plan.places = points_of_part(std::move(places), arguments.part, arguments.parts);
  plan.timed_iters = arguments.iters;
  return plan;
}

Status write_and_tell(ResultDirectory& directory, const nlohmann::json& document) {
  if (Status s = directory.write(kSweepFile, document); !s.ok()) return s;
  std::printf("%s\nwritten: %s/%s\n", sweep_table(document).c_str(),
              reference::one_line(directory.path()).c_str(), kSweepFile);
  return {};
}

/// Measures the sweep points of this process on its GPU.
Result<int> measure(const SweepPlan& plan, ResultDirectory& directory, const Device& device) {
  const auto info = describe_run(device);
  if (!info.ok()) return info.status();
  const auto results = run_sweep(plan, device);
  if (!results.ok()) return results.status();
  if (Status s = write_and_tell(directory, sweep_document(*info, *results)); !s.ok()) return s;
  return results->pass ? kExitPass : kExitFail;
}

/// The GPUs of "--gpus all" or "--gpus 0,2".
Result<std::vector<int>> chosen_gpus(const std::string& text) {
  const auto visible = visible_gpus();
  if (!visible.ok() || text == "all") return visible;
  std::vector<int> gpus;
  for (const std::string& word : split_list(text)) {
    const auto gpu = std::find_if(visible->begin(), visible->end(),
                                  [&](int index) { return std::to_string(index) == word; });
    if (gpu == visible->end()) {
      return invalid_argument("--gpus: got " + reference::one_line(word) + ", expected all or " +
                              "ordinals below " + std::to_string(visible->size()));
    }
    gpus.push_back(*gpu);
  }
  return gpus;
}

Result<nlohmann::json> read_sweep(const std::string& folder) {
  return read_result_file(folder + "/" + kSweepFile, "sweep", default_schema_folder());
}

Result<nlohmann::json> merge_parts(const std::string& folder, int parts) {
  std::vector<nlohmann::json> documents;
  for (int part = 0; part < parts; ++part) {
    auto document = read_sweep(folder + "/part_" + std::to_string(part));
    if (!document.ok()) return document.status();
    documents.push_back(std::move(*document));
  }
  return merge_sweeps(documents);
}

/// Spreads the sweep points over GPUs through ctest, and merges what the parts wrote.
Result<int> spread(const Arguments& arguments, const std::string& self,
                   const std::vector<int>& gpus, ResultDirectory& directory) {
  constexpr int kPartsOfGpu = 3;  // so that no GPU waits long for the last part of another
  const std::string ctest = find_program("ctest");
  if (ctest.empty())
    return invalid_argument("ctest is not on PATH: it spreads the parts over the GPUs");
  const std::string folder = std::filesystem::absolute(directory.path()).string();
  const auto places =
      sweep_points(arguments.first, arguments.last, arguments.step, arguments.head_dim);
  const int parts =
      std::min(static_cast<int>(gpus.size()) * kPartsOfGpu, static_cast<int>(places.size()));
  std::vector<std::string> command = {self};
  for (const auto& [flag, value] :
       {std::pair{"--variants", arguments.variants},
        {"--config", std::filesystem::absolute(arguments.config).string()},
        {"--first-level", std::to_string(arguments.first)},
        {"--last-level", std::to_string(arguments.last)},
        {"--level-step", std::to_string(arguments.step)},
        {"--head-dim", std::to_string(arguments.head_dim)},
        {"--iters", std::to_string(arguments.iters)}}) {
    command.insert(command.end(), {flag, value});
  }
  if (Status s = directory.write("gpus.json", resource_spec(gpus)); !s.ok()) return s;
  const std::string tests = part_tests(command, parts, folder);
  if (Status s = replace_file(folder + "/CTestTestfile.cmake", tests); !s.ok()) return s;
  const auto ran =
      run_process({ctest, "--test-dir", folder, "--resource-spec-file", folder + "/gpus.json",
                   "--parallel", std::to_string(gpus.size()), "--output-on-failure"},
                  Stderr::kKeep);
  if (!ran.ok()) return ran.status();
  if (ran->exit_code != 0) {
    std::fputs(ran->output.c_str(), stdout);
    refuse(kName, "a part failed, see above; what the others wrote is in " + folder + "/part_*");
    return kExitFail;
  }
  const auto merged = merge_parts(folder, parts);
  if (!merged.ok()) return merged.status();
  if (Status s = write_and_tell(directory, *merged); !s.ok()) return s;
  return kExitPass;
}

/// The GPU that CTest gave this process, and its share of the cores.
Status use_allocated(int gpu) {
  if (Status s = use_gpu(gpu); !s.ok()) return s;
  const auto visible = visible_gpus();
  if (!visible.ok()) return visible.status();
  return use_share_of_cores(gpu, static_cast<int>(visible->size()));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The sweep on the first of the GPUs alone, then on all of them: both times, and whether the
/// results are the same.
Result<int> measure_scaling(const Arguments& arguments, const std::string& self,
                            const std::vector<int>& gpus, ResultDirectory& directory) {
  auto alone = ResultDirectory::open_empty(arguments.folder + "/one_gpu");
  if (!alone.ok()) return alone.status();
  auto start = std::chrono::steady_clock::now();
  if (const auto code = spread(arguments, self, {gpus.front()}, *alone);
      !code.ok() || *code != kExitPass)
    return code;
  const SweepRun one{1, seconds_since(start)};
  start = std::chrono::steady_clock::now();
  if (const auto code = spread(arguments, self, gpus, directory); !code.ok() || *code != kExitPass)
    return code;
  const SweepRun all{static_cast<int>(gpus.size()), seconds_since(start)};
  const auto of_one = read_sweep(alone->path());
  if (!of_one.ok()) return of_one.status();
  const auto of_all = read_sweep(directory.path());
  if (!of_all.ok()) return of_all.status();
  const auto difference = compare_sweeps(*of_one, *of_all);
  if (!difference.ok()) {
    refuse(kName, difference.status().message());
    return kExitFail;
  }
  const auto document = scaling_document(*of_all, one, all, *difference);
  if (Status s = directory.write("scaling.json", document); !s.ok()) return s;
  std::printf("%s\nwritten: %s/scaling.json\n", scaling_line(one, all, *difference).c_str(),
              reference::one_line(directory.path()).c_str());
  return kExitPass;
}

Result<int> run(Arguments arguments, const std::string& self) {
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  const auto plan = resolve(arguments);
  if (!plan.ok()) return plan.status();
  if (arguments.scaling && arguments.gpus.empty()) {
    return invalid_argument("--scaling compares one GPU with several: it needs --gpus");
  }
  const auto allocated = allocated_gpu(process_environment());
  if (!allocated.ok()) return allocated.status();
  if (*allocated) {
    if (Status s = use_allocated(**allocated); !s.ok()) return s;
  }
  const auto device = the_gpu(process_environment());
  if (!device.ok()) return device.status();
  arguments.folder = folder_or_default(arguments.folder, "sweep");
  auto directory = ResultDirectory::open_empty(arguments.folder);
  if (!directory.ok()) return directory.status();
  if (arguments.gpus.empty()) return measure(*plan, *directory, *device);
  const auto gpus = chosen_gpus(arguments.gpus);
  if (!gpus.ok()) return gpus.status();
  if (arguments.scaling) return measure_scaling(arguments, self, *gpus, *directory);
  return spread(arguments, self, *gpus, *directory);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMaxDim = 256;
  constexpr int kMost = 100'000;
  CommandLine line(
      "Measures launches from S = 32 to 65536 and B*H = 1 to 128 at constant work, and fits what "
      "they cost.",
      kName);
  Arguments arguments;
  line.add("--variants", arguments.variants,
           "Names or globs; auto: the library's choice at each place");
  line.add("--config", arguments.config, "Configuration file: tolerances and warm-up");
  line.add("--first-level", arguments.first, "Smallest work, as log2 of B*H * S^2; default: 17")
      .between(2 * kSmallestSeqBits, 2 * kLargestSeqBits + kLargestHeadBits);
  line.add("--last-level", arguments.last, "Largest work; default: 32")
      .between(2 * kSmallestSeqBits, 2 * kLargestSeqBits + kLargestHeadBits);
  line.add("--level-step", arguments.step, "Between levels; default: 3").between(1, kMost);
  line.add("--head-dim", arguments.head_dim, "Default: 64").between(1, kMaxDim);
  line.add("--iters", arguments.iters, "Timed launches, fewer of large ones; default: 100")
      .between(1, kMost);
  line.add("--gpus", arguments.gpus, "Spread over GPUs: all, or ordinals 0,1,...");
  line.add("--scaling", arguments.scaling,
           "With --gpus: on the first of them alone before, and say what share of the time they "
           "take together");
  line.add("--part", arguments.part, "Of a spread sweep: the part to measure").between(0, kMost);
  line.add("--parts", arguments.parts, "Of a spread sweep: how many there are").between(1, kMost);
  line.add("--out", arguments.folder, "Default: results/<YYYYMMDD-HHMMSS>-sweep");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] {
    return run(arguments, std::filesystem::read_symlink("/proc/self/exe").string());
  });
}
