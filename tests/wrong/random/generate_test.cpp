// The drawing of mutants: which places there are, and that a seed names the draw.
#include "tests/wrong/random/generate.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/wrong/faults.hpp"

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

constexpr char kSource[] =
    "#include <a + 1>\n"
    "#define TWICE(x) \\\n  (2 * x)\n"
    "static_assert(sizeof(int) == 4, \"1 + 1\");\n"
    "/* 3 + 4 */\n"
    "void run(const T<int>& x) {\n"
    "  const int first_row = 5;  // 6 < 7\n"
    "  if (first_row < last_row && !done) gpu::mbarrier_wait(full[x], '8');\n"
    "  sum += std::max(last_row, x);\n"
    "  print(\"9 \\\" 9\");\n"
    "}\n";

std::set<std::string> edits_of(const std::string& text) {
  std::set<std::string> edits;
  for (const Place& place : places_of(text)) {
    EXPECT_EQ(text.substr(place.at, place.before.size()), place.before);
    for (const std::string& after : place.afters) {
      edits.insert(place.kind + ": " + place.before + " -> " + after);
    }
  }
  return edits;
}

TEST(Places, AreOfEveryKindAndOutsideComments) {
  EXPECT_EQ(edits_of(kSource),
            (std::set<std::string>{
                "comparison: < -> <=", "comparison: < -> >", "operator: && -> ||",
                "operator: ! -> ", "operator: += -> -=", "constant: 5 -> (5 + 1)",
                "constant: 5 -> (5 - 1)", "min and max: max -> min", "name: first_row -> last_row",
                "name: last_row -> first_row", "name: last_row, x -> x, last_row",
                "deleted wait, arrive or fence: gpu::mbarrier_wait(full[x], '8'); -> "
                "static_cast<void>(0);",
                "deleted statement: sum += std::max(last_row, x); -> static_cast<void>(0);",
                "deleted statement: print(\"9 \\\" 9\"); -> static_cast<void>(0);"}));
}

TEST(Draw, IsNamedByItsSeedAndHoldsNoMutantTwice) {
  const fs::path root = fs::path(testing::TempDir()) / "draw_of_mutants";
  fs::create_directories(root);
  std::ofstream(root / "a.cuh") << kSource;
  const auto all = draw(root, {"a.cuh"}, 7, 12);
  std::set<std::string> edits;
  for (const Mutant& mutant : all) {
    edits.insert(std::to_string(mutant.at) + mutant.before + mutant.after);
    EXPECT_NE(mutant.line_text.find(mutant.before), std::string::npos);
    EXPECT_EQ(mutant.line_text.find("//"), mutant.line == 7 ? 26 : std::string::npos);
  }
  EXPECT_EQ(edits.size(), 12U);
  const auto some = draw(root, {"a.cuh"}, 7, 5);
  const auto others = draw(root, {"a.cuh"}, 8, 5);
  int differ = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].at, all[i].at);
    EXPECT_EQ(some[i].after, all[i].after);
    EXPECT_NE(some[i].becomes, some[i].line_text);
    EXPECT_NE(some[i].becomes.find(some[i].after), std::string::npos);
    differ += others[i].at != some[i].at || others[i].after != some[i].after ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
  EXPECT_THROW(draw(root, {"a.cuh"}, 7, 100), std::runtime_error);
  fs::remove_all(root);
}

}  // namespace
}  // namespace fp8_sdpa::wrong
