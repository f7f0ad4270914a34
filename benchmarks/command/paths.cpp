#include "benchmarks/command/paths.hpp"

#include <filesystem>

namespace fp8_sdpa::bench {
namespace {

/// `compiled_in` unless only `fallback` is there.
std::string first_existing(const char* compiled_in, const std::filesystem::path& fallback) {
  std::error_code ignored;
  const bool use_fallback =
      !std::filesystem::exists(compiled_in, ignored) && std::filesystem::exists(fallback, ignored);
  return use_fallback ? fallback.string() : compiled_in;
}

std::filesystem::path benchmarks_folder() {
  return std::filesystem::path(default_schema_folder()).parent_path().parent_path();
}

}  // namespace

std::string default_config_path() {
  return first_existing(FP8_SDPA_CONFIG_FILE, "config_forward.json");
}

std::string default_schema_folder() {
  return first_existing(FP8_SDPA_SCHEMA_DIR, "benchmarks/files/schemas");
}

std::string default_source_folder() {
  const std::filesystem::path root = benchmarks_folder().parent_path();
  return root.empty() ? "." : root.string();
}

std::string default_plot_script() {
  return (benchmarks_folder() / "report" / "plots" / "plots.py").string();
}

std::string default_torch_script() {
  return (benchmarks_folder() / "peers" / "torch_sdpa.py").string();
}

std::string default_ptxas_report_path() {
  // Binaries lie one or two folders below the top of the build tree, the report at the top.
  std::error_code ignored;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", ignored);
  std::filesystem::path report =
      binary.parent_path().parent_path().parent_path() / "ptxas_report.json";
  if (!std::filesystem::exists(report, ignored)) {
    report = binary.parent_path().parent_path() / "ptxas_report.json";
  }
  return first_existing(FP8_SDPA_PTXAS_REPORT, report);
}

}  // namespace fp8_sdpa::bench
