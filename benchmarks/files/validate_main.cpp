// fp8_sdpa_validate FILE...: checks result files; one line per file that is refused.
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/validate.hpp"

namespace {

using namespace fp8_sdpa::bench;

int run(const std::vector<std::string>& files, const std::string& schemas) {
  int exit_code = kExitPass;
  for (const std::string& file : files) {
    if (const fp8_sdpa::Status status = validate_by_name(file, schemas); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      exit_code = kExitFail;
    }
  }
  if (exit_code == kExitPass) std::printf("%zu file(s) valid\n", files.size());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Checks result files against their JSON Schemas, and that files under results/h200/ "
      "were measured on an H200.",
      "fp8_sdpa_validate");
  std::vector<std::string> files;
  std::string schemas = default_schema_folder();
  line.add("FILE", files,
           "build_meta.json, correctness_summary.json, perf_baseline.json, elite.json, "
           "verdict.json, ceilings.json, sweep.json or kill_matrix.json")
      .required();
  line.add("--schemas", schemas, "Folder of the schemas");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(files, schemas); });
}
