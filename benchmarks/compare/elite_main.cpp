// fp8_sdpa_elite PERF --baseline V: keeps results/elite.json. Exit code 0, or 2 where something is
// refused; the file that was there is then as it was.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/command/tool.hpp"
#include "benchmarks/compare/elite.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/files/results.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

struct Arguments {
  std::string perf;
  std::string baseline;
  std::string method = "events_l2_warm";
  std::string elite = "results/elite.json";
};

Result<int> run(const Arguments& arguments) {
  const auto elite = read_elite(arguments.elite);
  if (!elite.ok()) return elite.status();
  const auto file = read_perf_file(arguments.perf);
  if (!file.ok()) return file.status();
  const auto update = update_elite(*elite, *file, arguments.baseline, arguments.method);
  if (!update.ok()) return update.status();
  const Status written = replace_file(arguments.elite, file_text(to_json(update->elite)));
  if (!written.ok()) return written;
  for (const std::string& note : update->notes) std::printf("%s\n", note.c_str());
  int rank = 0;
  for (const EliteEntry& entry : update->elite.entries) {
    std::printf("%d. %s %.3fx over %s\n", ++rank, entry.variant.c_str(), entry.speedup,
                update->elite.baseline.c_str());
  }
  std::printf("written: %s\n", reference::one_line(arguments.elite).c_str());
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Keeps the three fastest variants, by geometric-mean speed-up over a baseline that "
      "was measured in the same run.",
      "fp8_sdpa_elite");
  Arguments arguments;
  line.add("PERF", arguments.perf, "perf_baseline.json, its folder, or a file of fp8_sdpa_bench")
      .required();
  line.add("--baseline", arguments.baseline, "The variant to be faster than").required();
  line.add("--method", arguments.method, "Method whose p50 counts").one_of(method_names());
  line.add("--elite", arguments.elite, "The elite file");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(arguments); });
}
