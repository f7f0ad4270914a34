// The device halves of kernels/gpu cannot be run without a GPU: a typo in their PTX compiles, and
// no test on the host executor sees it. So their text is pinned. Whoever changes it runs the
// conformance tests on a GPU (ctest -L model), and then writes the pins anew:
//   SDPA_PIN_DEVICE_TEXT=1 build/release/tests/gates/gates --gtest_filter='DeviceText.*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace fp8_sdpa::tests {
namespace {

namespace fs = std::filesystem;

/// The lines of a header that a device compiler sees, without comments and blanks.
std::string device_text(std::istream& file) {
  static const std::regex kIf("^#\\s*if.*"), kHostIf("^#\\s*if.*!\\s*GPU_ON_DEVICE.*"),
      kDeviceIf("^#\\s*if.*GPU_ON_DEVICE.*"), kElse("^#\\s*else.*"), kEnd("^#\\s*endif.*"),
      kComment("//.*"), kBlank("\\s+");
  enum class Half { kBoth, kDevice, kHost };
  std::vector<Half> open;
  std::string text;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, kIf)) {
      open.push_back(std::regex_match(line, kHostIf)     ? Half::kHost
                     : std::regex_match(line, kDeviceIf) ? Half::kDevice
                                                         : Half::kBoth);
    } else if (std::regex_match(line, kElse) && !open.empty()) {
      if (open.back() != Half::kBoth) {
        open.back() = open.back() == Half::kHost ? Half::kDevice : Half::kHost;
      }
    } else if (std::regex_match(line, kEnd) && !open.empty()) {
      open.pop_back();
    } else if (std::find(open.begin(), open.end(), Half::kHost) == open.end()) {
      text += std::regex_replace(std::regex_replace(line, kComment, ""), kBlank, "");
    }
  }
  return text;
}

/// FNV-1a, as 16 hexadecimal digits.
std::string hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  std::ostringstream out;
  out << std::hex << hash;
  return out.str();
}

std::map<std::string, std::string> hashes_of_headers() {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : fs::directory_iterator(FP8_SDPA_GPU_FOLDER)) {
    if (entry.path().extension() != ".hpp") continue;
    std::ifstream file(entry.path());
    hashes[entry.path().filename()] = hash_of(device_text(file));
  }
  return hashes;
}

TEST(DeviceText, KeepsWhatADeviceCompiles) {
  std::istringstream header(
      "#include <a>\n#if GPU_ON_DEVICE  // device\nasm(\"x\");\n#ifdef Y\n y;\n#endif\n#else\n"
      "host;\n#endif\n#if !GPU_ON_DEVICE\nh2;\n#endif\n both;  // why\n");
  EXPECT_EQ(device_text(header), "#include<a>asm(\"x\");y;both;");
}

TEST(DeviceText, IsThatOfTheConformanceRun) {
  const std::map<std::string, std::string> now = hashes_of_headers();
  ASSERT_GT(now.size(), 5U);
  const char* pin = std::getenv("SDPA_PIN_DEVICE_TEXT");
  if (pin != nullptr && std::string(pin) == "1") {
    std::ofstream file(FP8_SDPA_DEVICE_TEXT_PINS);
    for (const auto& [name, hash] : now) file << name << " " << hash << "\n";
  }
  std::map<std::string, std::string> pinned;
  std::ifstream file(FP8_SDPA_DEVICE_TEXT_PINS);
  for (std::string name, hash; file >> name >> hash;) pinned[name] = hash;
  for (const auto& [name, hash] : now) {
    EXPECT_EQ(pinned[name], hash) << "kernels/gpu/" << name
                                  << ": its device half changed. Run ctest -L model on a GPU, then "
                                  << "SDPA_PIN_DEVICE_TEXT=1 gates --gtest_filter='DeviceText.*'";
  }
  EXPECT_EQ(pinned.size(), now.size()) << "a header is gone";
}

}  // namespace
}  // namespace fp8_sdpa::tests
