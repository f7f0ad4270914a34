// The maker of faults: what it edits, what it leaves alone, what it refuses; and that the catalogue
// as shipped fits the kernels as shipped.
#include "tests/wrong/faults.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

class Faults : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ =
        fs::path(testing::TempDir()) / (std::string(test->test_suite_name()) + "_" + test->name());
    fs::create_directories(root_ / "fam");
    fs::create_directories(root_ / "faults");
    write("fam/root.cuh",
          "#pragma once\n#include <cmath>\n#include \"gpu/gpu.hpp\"\n#include \"fam/part.cuh\"\n"
          "#include \"fam/part.cuh\"\nnamespace fp8_sdpa::fam {\nint f() { return g(); }\n}\n");
    write("fam/part.cuh", "#pragma once\nnamespace fp8_sdpa::fam {\nint g() { return 1; }\n}\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name) << text;
  }
  Catalogue erase(const std::string& pattern) {
    write("faults/families.json", R"({"families": {"fam": {"roots": ["fam/root.cuh"],
              "defines": "", "launch": "fam::launch<@KERNEL@>", "kernels": ["k", "l"]}}})");
    write("faults/races.json", R"({"faults": [], "erase": [{"stem": "no_barrier", "pattern": ")" +
                                   pattern + R"(", "files": ["fam/*.cuh"],
              "except": ["fam/skipped.cuh"]}]})");
    return read_catalogue(root_ / "faults", root_);
  }
  Catalogue read(const std::string& find, const std::string& judge = "gates") {
    write("faults/families.json", R"({"families": {"fam": {"roots": ["fam/root.cuh"],
              "defines": "#define X 1", "launch": "fam::launch<@KERNEL@>"}}})");
    write("faults/fam.json",
          R"({"family": "fam", "faults": [{"name": "two", "what": "g is 2", "kernel": "k",
              "file": "fam/part.cuh", "find": ")" +
              find + R"(", "replace": "return 2;", "judge": ")" + judge + R"("}]})");
    return read_catalogue(root_ / "faults", root_);
  }

  fs::path root_;
};

TEST_F(Faults, FlattenEditsAndNamesEachFileOnce) {
  const Catalogue catalogue = read("return 1;");
  EXPECT_EQ(flatten(catalogue, catalogue.faults[0], root_),
            "#define X 1\n#include <cmath>\n#include \"gpu/gpu.hpp\"\n"
            "namespace fp8_sdpa::two_k::fam {\nint g() { return 2; }\n}\n"
            "namespace fp8_sdpa::two_k::fam {\nint f() { return g(); }\n}\n");
}

TEST_F(Faults, WritesUnitsOfOneJudgeAndATable) {
  const Catalogue catalogue = read("return 1;", "address");
  write_translation_units(catalogue, root_, root_ / "out", 2, Judge::kAddress);
  std::ifstream table(root_ / "out/faults_table.cpp");
  const std::string text(std::istreambuf_iterator<char>(table), {});
  EXPECT_NE(text.find("{\"two\", \"k\", launch_two_k}"), std::string::npos) << text;
  EXPECT_TRUE(fs::exists(root_ / "out/faults_1.cpp"));
  write_translation_units(catalogue, root_, root_ / "out", 2, Judge::kGates);
  std::ifstream none(root_ / "out/faults_table.cpp");
  const std::string without(std::istreambuf_iterator<char>(none), {});
  EXPECT_EQ(without.find("launch_two"), std::string::npos);
}

TEST_F(Faults, RefusesACatalogueThatNoLongerFits) {
  EXPECT_THROW(read("return 3;"), std::runtime_error);
  EXPECT_THROW(read("e"), std::runtime_error) << "stands there more than once";
  EXPECT_THROW(read("return 1;", "nobody"), std::runtime_error);
  const Catalogue catalogue = read("return 1;");
  Fault elsewhere = catalogue.faults[0];
  elsewhere.file = "fam/other.cuh";
  EXPECT_THROW(flatten(catalogue, elsewhere, root_), std::runtime_error);
}

TEST_F(Faults, TakeEachBarrierOutInTurnOfEachKernel) {
  const std::string text =
      "// gpu::sync_block(); in a comment does not count\nvoid run() {\n"
      "  if (more) gpu::sync_block();  // tile_ready: staging is full\n  gpu::sync_block();\n}\n";
  write("fam/part.cuh", text);
  write("fam/skipped.cuh", text);
  const Catalogue catalogue = erase(R"(gpu::sync_block\\(\\);)");
  ASSERT_EQ(catalogue.faults.size(), 4U);
  const Fault& first = catalogue.faults[0];
  EXPECT_EQ(first.name + " " + first.kernel, "no_barrier_1_tile_ready k");
  EXPECT_EQ(first.line, 3);
  const std::string without = flatten(catalogue, first, root_);
  EXPECT_NE(without.find("if (more) static_cast<void>(0);  // tile_ready"), std::string::npos);
  EXPECT_NE(without.find("\n  gpu::sync_block();\n}"), std::string::npos);
  const Fault& last = catalogue.faults[3];
  EXPECT_EQ(last.name + " " + last.kernel, "no_barrier_2 l");
  EXPECT_EQ(last.line, 4);
  EXPECT_NE(flatten(catalogue, last, root_).find("if (more) gpu::sync_block();"),
            std::string::npos);
  EXPECT_THROW(erase("gpu::sync_warp"), std::runtime_error) << "matches nothing";
  write("fam/nobodys.cuh", text);
  EXPECT_THROW(erase(R"(gpu::sync_block\\(\\);)"), std::runtime_error);
}

TEST(ShippedFaults, CoverEveryFamilyAndFitTheKernels) {
  const fs::path source = FP8_SDPA_SOURCE_DIR;
  const Catalogue catalogue = read_catalogue(source / "tests/wrong/faults", source / "kernels");
  EXPECT_GE(catalogue.faults.size(), 50U);
  std::map<std::string, int> by_family;
  std::set<std::string> edits;
  std::set<std::string> erased;
  for (const Fault& fault : catalogue.faults) {
    if (fault.judge == Judge::kRace) {
      erased.insert(fault.name);
    } else {
      ++by_family[fault.family];
    }
    EXPECT_TRUE(edits
                    .insert(fault.file.string() + ":" + std::to_string(fault.at) + fault.find +
                            fault.replace + fault.kernel)
                    .second)
        << fault.name << " is an edit that another fault makes";
    EXPECT_NO_THROW(flatten(catalogue, fault, source / "kernels"));
  }
  EXPECT_GE(erased.size(), 5U);
  for (const auto& [family, entry] : catalogue.families) {
    EXPECT_GE(by_family[family], 5) << family;
  }
}

}  // namespace
}  // namespace fp8_sdpa::wrong
