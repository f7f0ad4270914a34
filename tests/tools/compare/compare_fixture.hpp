// Running fp8_sdpa_compare on files of a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {

class CompareTest : public ToolTest {
 protected:
  Ran compare_files(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--out", at("COMPARE.md")});
    return run(FP8_SDPA_COMPARE_BINARY, arguments);
  }

  /// Refused with exactly this line, and nothing written.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& line) const {
    const Ran ran = compare_files(arguments);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(ran.err, "fp8_sdpa_compare: " + line + "\n");
    EXPECT_EQ(ran.out, "");
    EXPECT_FALSE(std::filesystem::exists(at("COMPARE.md")));
  }

  void edit(const std::string& path, const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json document = read_json_file(path);
    change(document);
    write(path, document.dump());
  }
};

}  // namespace fp8_sdpa::bench
