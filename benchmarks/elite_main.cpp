// fp8_sdpa_elite PERF --baseline V: keeps results/elite.json. Exit code 0, or 2 where something is
// refused; the file that was there is then as it was.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "benchmarks/elite.hpp"
#include "benchmarks/result_directory.hpp"
#include "benchmarks/tool.hpp"

namespace {

using namespace fp8_sdpa::bench;

struct Arguments {
  std::string perf;
  std::string baseline;
  std::string method = "events_l2_warm";
  std::string elite = "results/elite.json";
};

int run(const CLI::App& app, const Arguments& arguments) {
  const auto elite = read_elite(arguments.elite);
  if (!elite.ok()) return refuse(app, elite.status().message());
  const auto file = read_perf_file(arguments.perf);
  if (!file.ok()) return refuse(app, file.status().message());
  const auto update = update_elite(*elite, *file, arguments.baseline, arguments.method);
  if (!update.ok()) return refuse(app, update.status().message());
  const fp8_sdpa::Status written = replace_file(arguments.elite, file_text(to_json(update->elite)));
  if (!written.ok()) return refuse(app, written.message());
  for (const std::string& note : update->notes) std::printf("%s\n", note.c_str());
  int rank = 0;
  for (const EliteEntry& entry : update->elite.entries) {
    std::printf("%d. %s %.3fx over %s\n", ++rank, entry.variant.c_str(), entry.speedup,
                update->elite.baseline.c_str());
  }
  std::printf("written: %s\n", arguments.elite.c_str());
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Keeps the three fastest variants, by geometric-mean speed-up over a baseline that "
      "was measured in the same run.",
      "fp8_sdpa_elite");
  Arguments arguments;
  app.add_option("PERF", arguments.perf,
                 "perf_baseline.json, its folder, or a file of fp8_sdpa_bench")
      ->required();
  app.add_option("--baseline", arguments.baseline, "The variant to be faster than")->required();
  app.add_option("--method", arguments.method, "Method whose p50 counts")
      ->check(CLI::IsMember({"events_l2_warm", "events_l2_cold", "graph_l2_warm"}))
      ->capture_default_str();
  app.add_option("--elite", arguments.elite, "The elite file")->capture_default_str();
  if (const auto code = parse_or_exit(app, argc, argv)) return *code;
  return run_guarded(app, [&] { return run(app, arguments); });
}
