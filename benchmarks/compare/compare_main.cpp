// fp8_sdpa_compare OLD NEW: a Markdown table and a verdict. Exit code 0: the asked speed-up is
// there; 1: it is missed, a shape regressed or a gate failed; 2: the files cannot be compared.
// fp8_sdpa_compare --aa FILE: how often it would call a difference where there is none. Exit code
// 1: in more than 5 % of the comparisons.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/command/selection.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/compare/aa.hpp"
#include "benchmarks/compare/compare.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/results.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

struct Arguments {
  std::string old_path;
  std::string new_path;
  std::string out = "results/COMPARE.md";
  std::string shapes;
  std::string by = "p50";
  std::string aa;
  std::string aa_record;
  AaOptions aa_options;
  CompareOptions options;
};

void declare(CommandLine& line, Arguments& arguments) {
  constexpr double kMaxSpeedup = 1e6;
  CompareOptions& options = arguments.options;
  line.add("--common", options.common_shapes,
           "Judge the shapes that both have; the others are named. Default: they are refused");
  const char* kinds = "perf_baseline.json, its folder, or a file of fp8_sdpa_bench";
  line.add("OLD", arguments.old_path, kinds);
  line.add("NEW", arguments.new_path, kinds);
  line.add("--min-speedup", options.min_speedup, "Geometric mean that is asked")
      .between(0.0, kMaxSpeedup);
  line.add("--out", arguments.out, "The Markdown file");
  line.add("--variant-old", options.variant_old, "Variants of OLD, comma-separated, or all");
  line.add("--variant-new", options.variant_new, "The variant of NEW against each, or all");
  line.add("--shapes", arguments.shapes,
           "Shapes to judge, comma-separated; default: all, the same in both");
  line.add("--method", options.method, "Method to judge by").one_of(method_names());
  line.add("--by", arguments.by, "Statistics that must each reach it: p50, p90, mean");
  constexpr double kMaxEffect = 0.5;
  line.add("--min-effect", options.rule.min_effect,
           "Share by which medians must differ to count as faster or slower")
      .between(0.0, kMaxEffect);
  constexpr int kMaxSplits = 100000;
  line.add("--aa", arguments.aa,
           "Instead of OLD and NEW: a file to be cut in two at random and compared with itself");
  line.add("--aa-splits", arguments.aa_options.splits, "How often").between(1, kMaxSplits);
  line.add("--aa-seed", arguments.aa_options.seed, "Seed of the cuts");
  line.add("--aa-record", arguments.aa_record, "Also write what --aa found, as JSON");
}

Result<int> run_aa(Arguments& arguments) {
  AaOptions& options = arguments.aa_options;
  options.method = arguments.options.method;
  options.rule = arguments.options.rule;
  const auto file = read_perf_file(arguments.aa);
  if (!file.ok()) return file.status();
  const auto report = compare_with_itself(*file, options);
  if (!report.ok()) return report.status();
  if (!arguments.aa_record.empty()) {
    const std::string text = file_text(to_json(*report, *file, options));
    const Status written = replace_file(arguments.aa_record, text);
    if (!written.ok()) return written;
  }
  std::fputs(to_text(*report, *file, options).c_str(), stdout);
  return report->pass() ? kExitPass : kExitFail;
}

Result<int> run(Arguments& arguments) {
  if (!arguments.aa.empty()) {
    if (arguments.old_path.empty()) return run_aa(arguments);
    return invalid_argument("--aa takes one file and no OLD or NEW");
  }
  if (arguments.new_path.empty()) {
    return invalid_argument("expected two files, OLD and NEW, or --aa FILE (see --help)");
  }
  CompareOptions& options = arguments.options;
  options.shapes = split_list(arguments.shapes);
  options.by = split_list(arguments.by);
  if (options.by.empty()) return invalid_argument("--by: empty, expected p50, p90 or mean");
  const auto old_file = read_perf_file(arguments.old_path);
  if (!old_file.ok()) return old_file.status();
  const auto new_file = read_perf_file(arguments.new_path);
  if (!new_file.ok()) return new_file.status();
  const auto comparison = compare(*old_file, *new_file, options);
  if (!comparison.ok()) return comparison.status();
  const std::string text = to_markdown(*comparison, *old_file, *new_file, options);
  const Status written = replace_file(arguments.out, text);
  if (!written.ok()) return written;
  std::printf("%s\nwritten: %s\n", text.c_str(), reference::one_line(arguments.out).c_str());
  return comparison->failures.empty() ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Compares measured times. Exit code 1: speed-up missed, regression or failed gate; "
      "2: the files cannot be compared.",
      "fp8_sdpa_compare");
  Arguments arguments;
  declare(line, arguments);
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(arguments); });
}
