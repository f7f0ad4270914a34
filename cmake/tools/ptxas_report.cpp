#include "cmake/tools/ptxas_report.hpp"

#include <charconv>
#include <regex>
#include <sstream>

namespace fp8_sdpa::build {
namespace {

// The integer before `unit` in a line such as "Used 40 registers, used 1 barriers, 384 bytes smem";
// 0 where the unit is not named, because ptxas leaves out what is not used.
int number_before(const std::string& line, const std::string& unit) {
  const std::regex pattern("([0-9]+) " + unit);
  std::smatch match;
  return std::regex_search(line, match, pattern) ? std::stoi(match[1]) : 0;
}

}  // namespace

std::string variant_of(const std::string& mangled) {
  // <source-name> ::= <length> <identifier>, so "tag" is spelled 3tag and its member follows.
  static const std::string kNamespace = "3tag";
  std::size_t at = mangled.find(kNamespace);
  while (at != std::string::npos) {
    const char* begin = mangled.data() + at + kNamespace.size();
    const char* end = mangled.data() + mangled.size();
    std::size_t length = 0;
    const auto [rest, failed] = std::from_chars(begin, end, length);
    if (failed == std::errc() && length > 0 && length <= static_cast<std::size_t>(end - rest)) {
      // Where a variant has several kernels, what follows tells them apart.
      static const std::regex kKernelOfVariant("_d[0-9]+_(exact|rounded)$");
      return std::regex_replace(std::string(rest, length), kKernelOfVariant, "");
    }
    at = mangled.find(kNamespace, at + 1);
  }
  return {};
}

bool parse_ptxas_log(const std::string& text, std::vector<KernelUsage>* kernels,
                     std::string* error) {
  static const std::regex kEntry("Compiling entry function '([^']+)' for '([^']+)'");
  std::istringstream lines(text);
  std::string line;
  KernelUsage current;
  bool open = false;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_search(line, match, kEntry)) {
      if (open) break;
      current = {};
      current.kernel = match[1];
      current.variant = variant_of(current.kernel);
      current.arch = match[2];
      open = true;
    } else if (open && line.find("bytes spill stores") != std::string::npos) {
      current.spill_stores = number_before(line, "bytes spill stores");
      current.spill_loads = number_before(line, "bytes spill loads");
    } else if (open && line.find("Used ") != std::string::npos) {
      current.registers = number_before(line, "registers");
      current.static_smem_bytes = number_before(line, "bytes smem");
      kernels->push_back(current);
      open = false;
    }
  }
  if (open) {
    *error = "ptxas gave no register count for " + current.kernel + " on " + current.arch;
    return false;
  }
  return true;
}

std::string to_json(const std::vector<KernelUsage>& kernels) {
  // Mangled names, tags and architectures are identifiers: nothing in them needs escaping.
  std::ostringstream json;
  json << "[";
  const char* separator = "\n";
  for (const KernelUsage& k : kernels) {
    json << separator << R"(  {"kernel": ")" << k.kernel << R"(", "variant": ")" << k.variant
         << R"(", "arch": ")" << k.arch << R"(", "registers": )" << k.registers
         << R"(, "static_smem_bytes": )" << k.static_smem_bytes << R"(, "spill_stores": )"
         << k.spill_stores << R"(, "spill_loads": )" << k.spill_loads << "}";
    separator = ",\n";
  }
  json << (kernels.empty() ? "]\n" : "\n]\n");
  return json.str();
}

}  // namespace fp8_sdpa::build
