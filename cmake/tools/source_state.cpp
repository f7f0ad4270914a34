#include "cmake/tools/source_state.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>

namespace fp8_sdpa::build {
namespace {

namespace fs = std::filesystem;

bool is_compiled(const fs::path& file) {
  constexpr std::array<std::string_view, 7> kExtensions = {".cpp", ".hpp",   ".cu", ".cuh",
                                                           ".def", ".cmake", ".in"};
  const std::string name = file.filename();
  if (name.starts_with(".")) return false;  // an editor's
  return name == "CMakeLists.txt" ||
         std::find(kExtensions.begin(), kExtensions.end(), file.extension()) != kExtensions.end();
}

/// FNV-1a. Mistakes are to be seen, not attacks.
class Hash {
 public:
  void add(std::string_view text) {
    constexpr std::uint64_t kPrime = 0x100000001b3;
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * kPrime;
  }
  std::string text() const {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value_));
    return digits.data();
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace

std::string source_state(const fs::path& root) {
  std::map<std::string, fs::path> files;  // in one order on every machine
  std::error_code ignored;
  for (const char* folder : {"benchmarks", "cmake", "kernels", "reference"}) {
    fs::recursive_directory_iterator entry(root / folder, ignored);
    for (; entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
      if (entry->is_regular_file(ignored) && is_compiled(entry->path())) {
        files.emplace(entry->path().lexically_relative(root).string(), entry->path());
      }
    }
  }
  if (files.empty()) return "";
  Hash hash;
  for (const auto& [name, path] : files) {
    std::ifstream stream(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    hash.add(name + '\0' + std::to_string(text.size()) + '\0');
    hash.add(text);
  }
  return hash.text();
}

}  // namespace fp8_sdpa::build
