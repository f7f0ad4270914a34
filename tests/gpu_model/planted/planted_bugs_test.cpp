// The executor alone, without a sanitizer, finds planted bugs: some adversary gives a wrong result
// or an error. Right kernels pass under every one.
#include "tests/gpu_model/planted/planted_catalogue.hpp"
#include "tests/gpu_model/support.hpp"

namespace planted {
namespace {

constexpr int kSeeds = 20;

class PlantedBugs : public testing::TestWithParam<Entry> {};

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, testing::ValuesIn(catalogue()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlantedBugs, SomeAdversaryFindsWhatIsWrongAndNoneWhatIsRight) {
  const Entry& planted = GetParam();
  const bool right = planted.right;
  if (!right && gpu_model::kSanitized) GTEST_SKIP() << "a sanitizer ends the program: see races/";
  if (!right && !planted.executor) GTEST_SKIP() << "only ThreadSanitizer can see it: see races/";
  int found = 0;
  for (const auto& options : gpu_model::adversaries(kSeeds)) {
    found += planted.passes(options) ? 0 : 1;
  }
  if (right) {
    EXPECT_EQ(found, 0);
  } else {
    EXPECT_GT(found, 0);
  }
}

}  // namespace
}  // namespace planted
