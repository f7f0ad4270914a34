// fp8_sdpa_compare OLD NEW: a Markdown table and a verdict. Exit code 0: the asked speed-up is
// there; 1: it is missed, a shape regressed or a gate failed; 2: the files cannot be compared.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "benchmarks/compare.hpp"
#include "benchmarks/result_directory.hpp"
#include "benchmarks/selection.hpp"
#include "benchmarks/tool.hpp"

namespace {

using namespace fp8_sdpa::bench;

struct Arguments {
  std::string old_path;
  std::string new_path;
  std::string out = "results/COMPARE.md";
  std::string shapes;
  std::string by = "p50";
  CompareOptions options;
};

void declare(CLI::App& app, Arguments& arguments) {
  constexpr double kMaxSpeedup = 1e6;
  CompareOptions& options = arguments.options;
  const char* kinds = "perf_baseline.json, its folder, or a file of fp8_sdpa_bench";
  app.add_option("OLD", arguments.old_path, kinds)->required();
  app.add_option("NEW", arguments.new_path, kinds)->required();
  app.add_option("--min-speedup", options.min_speedup, "Geometric mean that is asked")
      ->check(CLI::Range(0.0, kMaxSpeedup))
      ->capture_default_str();
  app.add_option("--out", arguments.out, "The Markdown file")->capture_default_str();
  app.add_option("--variant-old", options.variant_old, "A variant of OLD, or all")
      ->capture_default_str();
  app.add_option("--variant-new", options.variant_new, "The variant of NEW against it, or all")
      ->capture_default_str();
  app.add_option("--shapes", arguments.shapes,
                 "Shapes to judge, comma-separated; default: all, the same in both");
  app.add_option("--method", options.method, "Method to judge by")
      ->check(CLI::IsMember({"events_l2_warm", "events_l2_cold", "graph_l2_warm"}))
      ->capture_default_str();
  app.add_option("--by", arguments.by, "Statistics that must each reach it: p50, p90, mean")
      ->capture_default_str();
}

int run(const CLI::App& app, Arguments& arguments) {
  CompareOptions& options = arguments.options;
  options.shapes = split_list(arguments.shapes);
  options.by = split_list(arguments.by);
  if (options.by.empty()) return refuse(app, "--by: empty, expected p50, p90 or mean");
  const auto old_file = read_perf_file(arguments.old_path);
  if (!old_file.ok()) return refuse(app, old_file.status().message());
  const auto new_file = read_perf_file(arguments.new_path);
  if (!new_file.ok()) return refuse(app, new_file.status().message());
  const auto comparison = compare(*old_file, *new_file, options);
  if (!comparison.ok()) return refuse(app, comparison.status().message());
  const std::string text = to_markdown(*comparison, *old_file, *new_file, options);
  const fp8_sdpa::Status written = replace_file(arguments.out, text);
  if (!written.ok()) return refuse(app, written.message());
  std::printf("%s\nwritten: %s\n", text.c_str(), arguments.out.c_str());
  return comparison->failures.empty() ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Compares measured times. Exit code 1: speed-up missed, regression or failed gate; "
      "2: the files cannot be compared.",
      "fp8_sdpa_compare");
  Arguments arguments;
  declare(app, arguments);
  if (const auto code = parse_or_exit(app, argc, argv)) return *code;
  return run_guarded(app, [&] { return run(app, arguments); });
}
