// fp8_sdpa_peers: our kernels and other people's on the same inputs, judged and timed, interleaved.
// Exit code 0: ours passed; 1: one of ours failed a gate; 2: bad usage, or no GPU.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/selection.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/google_benchmark.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/peers/contest.hpp"
#include "benchmarks/run/goal_shapes.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

constexpr const char* kGoogleFile = "benchmark.json";
constexpr const char* kGoals = "goals";

struct Arguments {
  std::string shapes;
  std::string suite = "default";
  std::string variants = "auto";
  std::string config = default_config_path();
  std::string folder;
  std::string python = "python3";
  std::string script = default_torch_script();
  std::optional<int> iters;
  double seconds = 0;
};

/// The shapes of the configuration that were asked for; the suite "goals": all goal shapes, without
/// and with the causal mask (benchmarks/run/goal_shapes.hpp), those that take least first: under a
/// limit of time as many as there can be.
Result<std::vector<reference::Shape>> chosen_shapes(const Arguments& arguments,
                                                    const reference::Config& config) {
  if (!arguments.shapes.empty()) return select_shapes(split_list(arguments.shapes), config);
  if (arguments.suite != kGoals) return select_suite(arguments.suite, config);
  auto shapes = goal_shapes();
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const reference::Shape& a, const reference::Shape& b) {
                     return score_count(a) * a.head_dim < score_count(b) * b.head_dim;
                   });
  return shapes;
}

Result<ContestPlan> resolve(const Arguments& arguments) {
  ContestPlan plan;
  auto config = reference::load_config(arguments.config);
  if (!config.ok()) return config.status();
  auto shapes = chosen_shapes(arguments, *config);
  if (!shapes.ok()) return shapes.status();
  if (arguments.variants != "auto") {
    auto chosen = select_variants(split_list(arguments.variants), variants());
    if (!chosen.ok()) return chosen.status();
    plan.variants = std::move(*chosen);
  }
  plan.config = std::move(*config);
  plan.shapes = std::move(*shapes);
  plan.seed = plan.config.seeds.front();
  plan.timed_iters = arguments.iters.value_or(plan.config.timing.timed_iters);
  plan.max_seconds = arguments.seconds;
  return plan;
}

/// The second process, or nothing and a line that says why.
std::unique_ptr<TorchPeers> start_torch(const Arguments& arguments) {
  if (arguments.python == "none") return nullptr;
  auto torch = TorchPeers::start(arguments.python, arguments.script);
  if (torch.ok()) {
    print_line("second process: " + (*torch)->description());
    return std::move(*torch);
  }
  print_line("note: PyTorch's peers are left out: " + torch.status().message() +
             " (--python names the interpreter that has it)");
  return nullptr;
}

Status write_all(ResultDirectory& directory, const RunInfo& run, const Device& device,
                 const ContestResults& results, bool automatic) {
  const auto ptxas = load_ptxas_report();
  if (!ptxas.ok()) return ptxas.status();
  Status written = write_results(directory, run, *ptxas, results.correctness, &results.perf);
  if (!written.ok()) return written;
  const nlohmann::json google =
      benchmark_document(run, device, results.perf, results.correctness, automatic);
  if (Status s = directory.write(kGoogleFile, google); !s.ok()) return s;
  const std::string tables = contest_tables(results.perf, Method::kEventsWarm) +
                             contest_tables(results.perf, Method::kGraphWarm);
  print_line(tables);
  return replace_file(directory.path() + "/PEERS.md", "# Peers\n\n" + tables);
}

Result<int> run(const Arguments& arguments) {
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  auto plan = resolve(arguments);
  if (!plan.ok()) return plan.status();
  const auto choice = choose_device("auto", current_device(), process_environment());
  if (!choice.ok()) return choice.status();
  if (Status s = require_gpu(*choice); !s.ok()) return s;
  const auto info = describe_run(choice->device);
  if (!info.ok()) return info.status();
  auto directory = ResultDirectory::open_empty(folder_or_default(arguments.folder, "peers"));
  if (!directory.ok()) return directory.status();
  plan->scratch = std::filesystem::absolute(directory->path()).string();
  if (const std::string missing = missing_peers(); !missing.empty()) {
    print_line("note: " + missing);
  }
  const auto torch = start_torch(arguments);
  const ContestResults results =
      run_contest(*plan, choice->device, torch.get(), {print_line, Progress()});
  for (const std::string& left_out : results.left_out) print_line("note: " + left_out);
  if (results.perf.empty() && results.correctness.empty()) {
    return invalid_argument("nothing was measured; no file is written");
  }
  if (Status s = write_all(*directory, *info, choice->device, results, plan->variants.empty());
      !s.ok())
    return s;
  print_line("results: " + reference::one_line(directory->path()));
  return results.ours_pass ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMost = 1'000'000;
  CommandLine line(
      "Times our kernels beside cuDNN's and PyTorch's on the same inputs, in turns; judges them "
      "all.",
      "fp8_sdpa_peers");
  Arguments arguments;
  line.add("--shapes", arguments.shapes, "Names or globs of the configuration's shapes");
  line.add("--suite", arguments.suite,
           "The shapes of a suite of the configuration, or all; goals: those of forward/auto");
  line.add("--variants", arguments.variants,
           "Names or globs of ours; auto: the library's choice for each shape");
  line.add("--config", arguments.config, "Configuration file");
  line.add("--iters", arguments.iters,
           "Timed launches, fewer on large shapes; default: the configuration's")
      .between(1, kMost);
  line.add("--seconds", arguments.seconds,
           "Begin no further shape after so many; 0, the default: measure them all")
      .between(0.0, kMost);
  line.add("--python", arguments.python, "The interpreter that has PyTorch; none: without it");
  line.add("--torch-script", arguments.script, "benchmarks/peers/torch_sdpa.py");
  line.add("--out", arguments.folder, "Default: results/<YYYYMMDD-HHMMSS>-peers");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(arguments); });
}
