// fp8_sdpa_report RUN_DIR...: the run log of result folders. Exit code 0, or 2 where one is
// refused.
#include <cstdio>
#include <ctime>
#include <string>

#include "benchmarks/run_log.hpp"
#include "benchmarks/tool.hpp"

namespace {

using namespace fp8_sdpa::bench;

int run(const CommandLine& line, const RunLogRequest& request, const std::string& root) {
  const std::time_t now = std::time(nullptr);
  const auto text = run_log(request, now);
  if (!text.ok()) return refuse(line, text.status().message());
  const auto path = write_run_log(root, *text, now);
  if (!path.ok()) return refuse(line, path.status().message());
  std::printf("written: %s\n", path->c_str());
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Writes the run log, results/runs/run_YYYYMMDD_HHMM.md, from result folders.",
                   "fp8_sdpa_report");
  RunLogRequest request;
  request.elite = "results/elite.json";
  request.baseline = "stage_c";
  std::string root = "results/runs";
  line.add("RUN_DIR", request.folders, "Folders of fp8_sdpa_run and fp8_sdpa_profile").required();
  line.add("--elite", request.elite, "The elite file");
  line.add("--baseline", request.baseline, "The variant that others are measured by");
  line.add("--out", root, "Folder of the run log");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(line, request, root); });
}
