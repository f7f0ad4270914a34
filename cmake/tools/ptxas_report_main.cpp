// ptxas_report --out FILE OBJECT...: one report over <object>.ptxas.txt of every object. An object
// without one was not compiled by nvcc and is passed over.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cmake/tools/ptxas_report.hpp"

int main(int argc, char** argv) {
  constexpr int kFirstObject = 3;
  constexpr int kBadUsage = 2;
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc < kFirstObject || arguments[1] != "--out") {
    std::fprintf(stderr, "usage: ptxas_report --out FILE OBJECT...\n");
    return kBadUsage;
  }
  std::vector<fp8_sdpa::build::KernelUsage> kernels;
  for (std::size_t i = kFirstObject; i < arguments.size(); ++i) {
    const std::string log = arguments[i] + ".ptxas.txt";
    if (!std::filesystem::exists(log)) continue;
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    std::string error;
    if (!fp8_sdpa::build::parse_ptxas_log(text.str(), &kernels, &error)) {
      std::fprintf(stderr, "%s: %s\n", log.c_str(), error.c_str());
      return 1;
    }
  }
  const std::string unfinished = arguments[2] + ".tmp";
  std::ofstream(unfinished) << fp8_sdpa::build::to_json(kernels);
  std::error_code failed;
  std::filesystem::rename(unfinished, arguments[2], failed);
  if (failed) {
    std::fprintf(stderr, "%s: %s\n", arguments[2].c_str(), failed.message().c_str());
    return 1;
  }
  return 0;
}
