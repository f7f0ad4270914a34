#include "benchmarks/files/ptxas_report.hpp"

#include <cstdint>
#include <filesystem>

#include "benchmarks/command/paths.hpp"
#include "reference/formats/json_reader.hpp"

namespace fp8_sdpa::bench {

Result<PtxasReport> parse_ptxas_report(const std::string& text, const std::string& path) {
  const auto root = reference::parse_json(text, path);
  if (!root.ok()) return root.status();
  reference::JsonReader reader(path);
  PtxasReport report;
  const reference::JsonPointer top;
  if (!root->is_array()) reader.refuse(top, *root, "a list of kernels");
  for (std::size_t i = 0; i < root->size() && reader.ok(); ++i) {
    const auto at = top / i;
    const reference::Json& entry = root->at(i);
    if (!reader.object(entry, at,
                       {"kernel", "variant", "arch", "registers", "static_smem_bytes",
                        "spill_stores", "spill_loads"})) {
      break;
    }
    const auto text_at = [&](const char* key) {
      if (entry.at(key).is_string()) return entry.at(key).get<std::string>();
      reader.refuse(at / key, entry.at(key), "a string");
      return std::string();
    };
    const auto count_at = [&](const char* key) {
      return reader.integer(entry.at(key), at / key, 0, INT32_MAX);
    };
    report.entries.push_back({text_at("kernel"), text_at("variant"), text_at("arch"),
                              static_cast<int>(count_at("registers")),
                              static_cast<std::size_t>(count_at("static_smem_bytes")),
                              static_cast<std::size_t>(count_at("spill_stores")),
                              static_cast<std::size_t>(count_at("spill_loads"))});
  }
  if (!reader.ok()) return reader.status();
  return report;
}

Result<PtxasReport> load_ptxas_report(const std::string& path) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return PtxasReport{{}, "this build has no compiler report: nvcc compiled no kernel"};
  }
  const auto text = reference::read_text_file(path, kMaxBytes, "the build's compiler report");
  if (!text.ok()) return text.status();
  return parse_ptxas_report(*text, path);
}

Result<PtxasReport> load_ptxas_report() { return load_ptxas_report(default_ptxas_report_path()); }

}  // namespace fp8_sdpa::bench
