#include "tests/kernels/kernel_code.hpp"

#include <algorithm>
#include <regex>
#include <sstream>
#include <string_view>

#include "cmake/tools/ptxas_report.hpp"

namespace fp8_sdpa::tests {
namespace {

std::string trimmed(const std::string& line) {
  const auto begin = line.find_first_not_of(" \t");
  const auto end = line.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
}

/// What is left of a line without the braces of scopes around it: inline assembly has its own.
std::string without_scopes(const std::string& line) {
  std::string text = trimmed(line);
  while (text.starts_with('{')) text = trimmed(text.substr(1));
  while (text.ends_with('}')) text = trimmed(text.substr(0, text.size() - 1));
  return text;
}

bool is_instruction(const std::string& text) {
  constexpr std::string_view kOthers = "./()$";  // directives, comments, parameters, labels
  return !text.empty() && kOthers.find(text[0]) == std::string_view::npos;
}

/// Scopes that a line opens less those that it closes. Vector operands close what they open.
int opened_scopes(const std::string& line) {
  return static_cast<int>(std::count(line.begin(), line.end(), '{') -
                          std::count(line.begin(), line.end(), '}'));
}

/// What follows the predicate "@%p1 " or "@!%p1 ".
std::string without_predicate(const std::string& instruction) {
  if (instruction[0] != '@') return instruction;
  const auto space = instruction.find_first_of(" \t");
  return space == std::string::npos ? instruction : trimmed(instruction.substr(space));
}

}  // namespace

int KernelCode::count(const std::string& mnemonic) const {
  return static_cast<int>(std::count_if(
      instructions.begin(), instructions.end(),
      [&](const std::string& line) { return without_predicate(line).starts_with(mnemonic); }));
}

std::string KernelCode::body() const {
  // Labels are numbered by the kernel's place in its file: $L__BB3_26.
  static const std::regex kLabel("L__BB[0-9]+_");
  std::string text;
  for (std::string line : instructions) {
    for (auto at = line.find(symbol); at != std::string::npos; at = line.find(symbol)) {
      line.replace(at, symbol.size(), "kernel");
    }
    text += std::regex_replace(line, kLabel, "L__BB_") + "\n";
  }
  return text;
}

std::vector<KernelCode> parse_ptx(const std::string& text) {
  std::vector<KernelCode> kernels;
  std::istringstream lines(text);
  std::string line;
  std::string arch;
  int depth = 0;
  while (std::getline(lines, line)) {
    if (line.starts_with(".target ")) {
      arch = trimmed(line.substr(std::string(".target ").size()));
    } else if (const auto entry = line.find(".entry "); entry != std::string::npos) {
      KernelCode kernel;
      const auto begin = entry + std::string(".entry ").size();
      kernel.symbol = trimmed(line.substr(begin, line.find_first_of("( \t", begin) - begin));
      kernel.variant = build::variant_of(kernel.symbol);
      kernel.arch = arch;
      kernels.push_back(kernel);
    } else if (!kernels.empty()) {
      depth += opened_scopes(line);
      if (const std::string text = without_scopes(line); depth > 0 && is_instruction(text)) {
        kernels.back().instructions.push_back(text);
      }
    }
  }
  return kernels;
}

std::vector<KernelCode> parse_sass(const std::string& text) {
  constexpr std::string_view kFunction = "Function : ";
  constexpr std::string_view kArch = "arch = ";
  std::vector<KernelCode> kernels;
  std::istringstream lines(text);
  std::string arch;
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    if (line.starts_with(kArch)) {
      arch = line.substr(kArch.size());
    } else if (line.starts_with(kFunction)) {
      KernelCode kernel;
      kernel.symbol = line.substr(kFunction.size());
      kernel.variant = build::variant_of(kernel.symbol);
      kernel.arch = arch;
      kernels.push_back(kernel);
    } else if (line.starts_with("/*") && !kernels.empty()) {
      // "/*0010*/  @P0 BRA 0x40 ;  /* 0x... */"; a line with the rest of an encoding has no text.
      const auto begin = line.find("*/");
      const auto end = line.find(';');
      if (begin == std::string::npos || end == std::string::npos) continue;
      kernels.back().instructions.push_back(trimmed(line.substr(begin + 2, end - begin - 2)));
    }
  }
  return kernels;
}

}  // namespace fp8_sdpa::tests
