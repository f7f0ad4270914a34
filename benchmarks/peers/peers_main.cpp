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
#include "benchmarks/peers/flash3/flash3_peers.hpp"
#include "benchmarks/peers/ratios.hpp"
#include "benchmarks/peers/unquantised/unquantised.hpp"
#include "benchmarks/run/drawn_shapes.hpp"
#include "benchmarks/run/goal_shapes.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

constexpr const char* kGoogleFile = "benchmark.json";
constexpr const char* kGoals = "goals";
constexpr const char* kGoal = "goal";
constexpr Method kRatioMethods[] = {kRatioMethod};

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
  bool lse = false;
  bool exact = false;
  int drawn = 0;
  std::uint64_t draw_seed = 0;
  bool few_rows = false;
  bool unquantised = false;

  bool wants_goals() const { return shapes == kGoal; }
  /// Goal and drawn shapes are many: they make a table of ratios of single launches.
  bool wants_ratios() const { return wants_goals() || drawn > 0; }
  std::vector<reference::Shape> drawn_ones() const {
    return drawn_shapes(drawn, draw_seed, few_rows);
  }
};

/// All goal shapes, without and with the causal mask (benchmarks/run/goal_shapes.hpp), those that
/// take least first: under a limit of time as many as there can be.
std::vector<reference::Shape> goals() {
  auto shapes = goal_shapes();
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const reference::Shape& a, const reference::Shape& b) {
                     return score_count(a) * a.head_dim < score_count(b) * b.head_dim;
                   });
  return shapes;
}

/// The shapes of the configuration that were asked for, or goal shapes, or drawn ones.
Result<std::vector<reference::Shape>> chosen_shapes(const Arguments& arguments,
                                                    const reference::Config& config) {
  if (arguments.wants_ratios()) {
    auto shapes = arguments.wants_goals() ? goals() : std::vector<reference::Shape>();
    if (!arguments.wants_goals() && !arguments.shapes.empty()) {
      return invalid_argument("--drawn goes with --shapes goal alone, got --shapes " +
                              reference::one_line(arguments.shapes));
    }
    const auto drawn = arguments.drawn_ones();
    shapes.insert(shapes.end(), drawn.begin(), drawn.end());
    return shapes;
  }
  if (!arguments.shapes.empty()) return select_shapes(split_list(arguments.shapes), config);
  return arguments.suite == kGoals ? goals() : select_suite(arguments.suite, config);
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
  plan.warmup_iters = plan.config.timing.warmup_iters;
  plan.max_seconds = arguments.seconds;
  if (arguments.lse) plan.lse = arguments.exact ? LseSum::kExact : LseSum::kDenominator;
  if (arguments.wants_ratios()) {
    constexpr int kSamples = 15;
    constexpr int kWarmUps = 10;
    plan.timed_iters = arguments.iters.value_or(kSamples);
    plan.warmup_iters = kWarmUps;
    plan.methods = kRatioMethods;
    plan.output = Dtype::kBFloat16;
    plan.judged_scores = std::int64_t{1} << 22;
    plan.budgets_only = true;
  }
  return plan;
}

/// The second process, or nothing and a line that says why.
std::unique_ptr<TorchPeers> start_torch(const Arguments& arguments) {
  if (arguments.python == "none") return nullptr;
  if (arguments.lse || arguments.wants_ratios()) {
    print_line(std::string("note: PyTorch's peers are left out: they ") +
               (arguments.lse ? "are asked for O alone, without an LSE"
                              : "are not timed in turns with ours"));
    return nullptr;
  }
  auto torch = TorchPeers::start(arguments.python, arguments.script);
  if (torch.ok()) {
    print_line("second process: " + (*torch)->description());
    return std::move(*torch);
  }
  print_line("note: PyTorch's peers are left out: " + torch.status().message() +
             " (--python names the interpreter that has it)");
  return nullptr;
}

std::string tables_of(const Arguments& arguments, const ContestResults& results) {
  if (!arguments.wants_ratios()) {
    return contest_tables(results.perf, Method::kEventsWarm) +
           contest_tables(results.perf, Method::kGraphWarm);
  }
  const std::string seed = std::to_string(arguments.draw_seed);
  return (arguments.wants_goals() ? ratio_tables("Goal shapes", goals(), results) : "") +
         ratio_tables("Shapes drawn by seed " + seed, arguments.drawn_ones(), results);
}

Status write_all(ResultDirectory& directory, const RunInfo& run, const Device& device,
                 const ContestResults& results, bool automatic, const std::string& tables) {
  const auto ptxas = load_ptxas_report();
  if (!ptxas.ok()) return ptxas.status();
  Status written = write_results(directory, run, *ptxas, results.correctness, &results.perf);
  if (!written.ok()) return written;
  const nlohmann::json google =
      benchmark_document(run, device, results.perf, results.correctness, automatic);
  if (Status s = directory.write(kGoogleFile, google); !s.ok()) return s;
  print_line(tables);
  return replace_file(directory.path() + "/PEERS.md", "# Peers\n\n" + tables);
}

/// From bf16 to bf16: rows of unquantised.hpp beside what the run was.
Result<int> run_unquantised(const Arguments& arguments, const Device& device, const RunInfo& info) {
  auto directory = ResultDirectory::open_empty(folder_or_default(arguments.folder, "peers"));
  if (!directory.ok()) return directory.status();
  nlohmann::json document = result_header(info);
  const auto keep = [&](const nlohmann::json& rows) {
    document["rows"] = rows;
    return directory->write(kUnquantisedFile, document);
  };
  if (Status s = measure_unquantised(unquantised_shapes(), arguments.draw_seed, device,
                                     {print_line, Progress()}, keep);
      !s.ok()) {
    return s;
  }
  print_line("results: " + reference::one_line(directory->path()));
  return kExitPass;
}

Result<int> run(const Arguments& arguments) {
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  auto plan = resolve(arguments);
  if (!plan.ok()) return plan.status();
  const auto device = the_gpu(process_environment());
  if (!device.ok()) return device.status();
  const auto info = describe_run(*device);
  if (!info.ok()) return info.status();
  if (arguments.unquantised) return run_unquantised(arguments, *device, *info);
  auto directory = ResultDirectory::open_empty(folder_or_default(arguments.folder, "peers"));
  if (!directory.ok()) return directory.status();
  plan->scratch = std::filesystem::absolute(directory->path()).string();
  if (const auto flash3 = load_flash3(process_environment()(kFlash3Variable)); flash3.ok()) {
    print_line(std::string("library of FlashAttention-3: ") + (*flash3)->source);
  }
  for (const std::string& missing : missing_peers()) print_line("note: " + missing);
  for (const Peer& peer : peers()) {
    if (!peer.writes_lse || arguments.lse) continue;
    print_line("note: " + std::string(peer.variant.name) +
               " writes an LSE with every launch, into memory of its own; ours writes none");
  }
  const auto torch = start_torch(arguments);
  const ContestResults results = run_contest(*plan, *device, torch.get(), {print_line, Progress()});
  for (const std::string& left_out : results.left_out) print_line("note: " + left_out);
  if (results.perf.empty() && results.correctness.empty()) {
    return invalid_argument("nothing was measured; no file is written");
  }
  if (Status s = write_all(*directory, *info, *device, results, plan->variants.empty(),
                           tables_of(arguments, results));
      !s.ok()) {
    return s;
  }
  print_line("results: " + reference::one_line(directory->path()));
  return results.ours_pass ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMost = 1'000'000;
  constexpr int kMostDrawn = 1000;
  CommandLine line(
      "Times our kernels beside FlashAttention-3's, cuDNN's and PyTorch's on the same inputs, in "
      "turns; judges them "
      "all.",
      "fp8_sdpa_peers");
  Arguments arguments;
  line.add(
      "--shapes", arguments.shapes,
      "Names or globs of the configuration's shapes; goal: a table of ratios of the goal shapes");
  const Option drawn = line.add("--drawn", arguments.drawn,
                                "So many shapes drawn at random, also after those of --shapes "
                                "goal: a table of ratios")
                           .between(0, kMostDrawn);
  line.add("--draw-seed", arguments.draw_seed, "Of --drawn").needs(drawn);
  line.add("--few-rows", arguments.few_rows,
           "Of --drawn: 1 to 64 query rows, as in decode steps on whole tensors")
      .needs(drawn);
  line.add(
      "--unquantised", arguments.unquantised,
      "From bf16 to bf16 in one call, beside cuDNN and FlashAttention-3: errors, times, and the "
      "quantiser's share of a copy's rate");
  const Option lse =
      line.add("--lse", arguments.lse, "All write an LSE; peers that cannot are declined");
  line.add("--exact", arguments.exact, "Ours of exact row sums").needs(lse);
  line.add("--suite", arguments.suite,
           "The shapes of a suite of the configuration, or all; goals: those of forward/auto");
  line.add("--variants", arguments.variants,
           "Names or globs of ours; auto: the library's choice for each shape");
  line.add("--config", arguments.config, "Configuration file");
  line.add("--iters", arguments.iters,
           "Timed launches, fewer on large shapes; default: the configuration's, of ratios 15")
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
