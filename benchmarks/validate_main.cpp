// fp8_sdpa_validate FILE...: checks result files; one line per file that is refused.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/exit_codes.hpp"
#include "benchmarks/paths.hpp"
#include "benchmarks/validate.hpp"

int main(int argc, char** argv) {
  using namespace fp8_sdpa::bench;
  CLI::App app(
      "Checks result files against their JSON Schemas, and that files under results/h200/ "
      "were measured on an H200.");
  std::vector<std::string> files;
  std::string schemas = default_schema_folder();
  app.add_option("FILE", files,
                 "build_meta.json, correctness_summary.json, perf_baseline.json, elite.json or "
                 "verdict.json")
      ->required();
  app.add_option("--schemas", schemas, "Folder of the schemas");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "fp8_sdpa_validate: %s\n", error.what());
    return kExitBadUsage;
  }
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
