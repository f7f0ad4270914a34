// The maker of wrong kernels: what it finds, what it leaves alone, what it refuses.
#include "tests/wrong/mutants/mutants.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace fp8_sdpa::wrong {
namespace {

constexpr char kKernel[] =
    "// gpu::sync_block(); in a comment does not count\n"
    "void run() {\n"
    "  if (more) gpu::sync_block();  // tile_ready: staging is full\n"
    "  a = b + 1;\n"
    "  gpu::sync_block();\n"
    "}\n";

class Mutants : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(testing::TempDir()) /
            (std::string(test->test_suite_name()) + "_" + test->name());
    std::filesystem::create_directories(root_ / "kernels");
    std::ofstream(root_ / "kernels/a.cuh") << kKernel;
    std::ofstream(root_ / "kernels/skipped.cuh") << kKernel;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::vector<Mutant> make(const std::string& catalogue) {
    std::ofstream(root_ / "catalogue.json") << catalogue;
    error_.clear();
    return make_mutants(root_, root_ / "catalogue.json", &error_);
  }
  static std::string erase(const std::string& pattern) {
    return R"({"erase": [{"stem": "no_barrier", "pattern": ")" + pattern +
           R"(", "files": ["kernels/*.cuh"], "except": ["kernels/skipped.cuh"]}], "faults": []})";
  }
  static std::string fault(const std::string& find) {
    return R"({"erase": [], "faults": [{"name": "off_by_one", "file": "kernels/a.cuh", "find": ")" +
           find + R"(", "replace": "b"}]})";
  }

  std::filesystem::path root_;
  std::string error_;
};

TEST_F(Mutants, TakesEachBarrierOutInTurn) {
  const auto mutants = make(erase(R"(gpu::sync_block\\(\\);)"));
  ASSERT_EQ(error_, "");
  ASSERT_EQ(mutants.size(), 2U);
  EXPECT_EQ(mutants[0].name, "no_barrier_1_tile_ready");
  EXPECT_EQ(mutants[0].line, 3);
  EXPECT_NE(mutants[0].text.find("if (more) static_cast<void>(0);  // tile_ready"),
            std::string::npos);
  EXPECT_NE(mutants[0].text.find("\n  gpu::sync_block();\n}"), std::string::npos);
  EXPECT_EQ(mutants[1].name, "no_barrier_2");
  EXPECT_EQ(mutants[1].line, 5);
  EXPECT_NE(mutants[1].text.find("if (more) gpu::sync_block();"), std::string::npos);
}

TEST_F(Mutants, UnchangedIsTheFileAsItIs) {
  for (const Mutant& mutant : make(erase(R"(gpu::sync_block\\(\\);)"))) {
    EXPECT_NE(mutant.text, kKernel);
    EXPECT_EQ(unchanged(mutant).text, kKernel);
  }
}

TEST_F(Mutants, AppliesANamedFault) {
  const auto mutants = make(fault("b + 1"));
  ASSERT_EQ(error_, "");
  ASSERT_EQ(mutants.size(), 1U);
  EXPECT_NE(mutants[0].text.find("a = b;"), std::string::npos);
}

TEST_F(Mutants, RefusesACatalogueThatNoLongerFits) {
  EXPECT_TRUE(make(erase("gpu::sync_warp")).empty());
  EXPECT_NE(error_.find("no_barrier"), std::string::npos) << error_;
  EXPECT_TRUE(make(fault("b + 2")).empty());
  EXPECT_NE(error_.find("is not in kernels/a.cuh"), std::string::npos) << error_;
  EXPECT_TRUE(make(fault("sync_block")).empty());
  EXPECT_NE(error_.find("more than once"), std::string::npos) << error_;
  EXPECT_TRUE(make("{").empty());
  EXPECT_NE(error_.find("catalogue.json"), std::string::npos) << error_;
}

// The catalogue as shipped fits the kernels as shipped.
TEST(ShippedCatalogue, FindsTheBarriersAndWaitsOfTheKernels) {
  std::string error;
  const std::filesystem::path source = FP8_SDPA_SOURCE_DIR;
  const auto mutants = make_mutants(source, source / "tests/wrong/mutants/catalogue.json", &error);
  ASSERT_EQ(error, "");
  int barriers = 0;
  int waits = 0;
  for (const Mutant& mutant : mutants) {
    barriers += mutant.name.starts_with("no_barrier") ? 1 : 0;
    waits += mutant.name.starts_with("no_wait") ? 1 : 0;
  }
  EXPECT_GE(barriers, 4);
  EXPECT_GE(waits, 1);
}

}  // namespace
}  // namespace fp8_sdpa::wrong
