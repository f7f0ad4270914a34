// A binary whose sources have changed since it was built says nothing of kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/files/build_info.hpp"
#include "cmake/tools/source_state.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

namespace fs = std::filesystem;

class StaleBinary : public ToolTest {
 protected:
  /// The folders of the tree that this test was built from.
  StaleBinary() {
    fs::create_directories(root / "tree");
    for (const char* folder : {"benchmarks", "cmake", "kernels", "reference"}) {
      fs::copy(fs::path(default_source_folder()) / folder, root / "tree" / folder,
               fs::copy_options::recursive);
    }
  }
  Status looked_at() const { return check_sources(environment_of({{"SDPA_SOURCES", at("tree")}})); }
  void append(const std::string& file, const std::string& text) const {
    std::ofstream(root / "tree" / file, std::ios::app) << text;
  }
};

TEST_F(StaleBinary, KnowsTheSourcesItWasBuiltFrom) {
  EXPECT_TRUE(looked_at().ok()) << looked_at().message();
  EXPECT_TRUE(check_sources(environment_of({})).ok());
  append("kernels/sm90/README.md", "more");
  write(at("tree/kernels/sm90/.#kernel.cuh"), "an editor's");
  EXPECT_TRUE(looked_at().ok()) << "nothing of it is compiled";
}

TEST_F(StaleBinary, SeesAnEditATableAndAFileThatIsNewGoneOrEmpty) {
  const std::string before = build::source_state(at("tree"));
  std::vector<std::string> seen = {before};
  const auto changed = [&](const char* what) {
    const std::string now = build::source_state(at("tree"));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), now), 0) << what;
    EXPECT_FALSE(looked_at().ok()) << what;
    seen.push_back(now);
  };
  append("kernels/sm90/kernel.cuh", "#error\n");
  changed("an edit");
  append("kernels/sm90/tile_shapes.def", "\n");
  changed("a table");
  write(at("tree/kernels/sm90/new.hpp"), "");
  changed("a new file");
  fs::rename(root / "tree/kernels/sm90/new.hpp", root / "tree/kernels/sm90/newer.hpp");
  changed("another name");
  fs::remove(root / "tree/reference/judge/gates.cpp");
  changed("a file that is gone");
  fs::remove_all(root / "tree");
  changed("no sources");
}

TEST_F(StaleBinary, RefusesInOneLineToJudgeOrTime) {
  append("kernels/sm90/kernel.cuh", "#error\n");
  const std::string environment = "SDPA_SOURCES='" + at("tree") + "'";
  for (const char* binary :
       {FP8_SDPA_RUN_BINARY, FP8_SDPA_BENCH_BINARY, FP8_SDPA_TIMELINE_BINARY}) {
    const bool timeline = std::string(binary) == FP8_SDPA_TIMELINE_BINARY;
    const auto arguments =
        timeline ? std::vector<std::string>{"small", "0"} : std::vector<std::string>{};
    const Ran ran = run(binary, arguments, environment);
    EXPECT_EQ(ran.exit_code, 2) << ran.out << ran.err;
    EXPECT_NE(ran.err.find("built from other sources than there are now in " + at("tree")),
              std::string::npos)
        << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(run(binary, {"--help"}, environment).exit_code, 0);
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
