// The executor alone, without a sanitizer, finds planted bugs: some adversary gives a wrong result
// or an error. Right kernels pass under every one.
#include "tests/gpu_model/planted_bugs.hpp"
#include "tests/gpu_model/support.hpp"

namespace planted {
namespace {

constexpr int kSeeds = 20;

class PlantedBugs : public testing::TestWithParam<Planted> {};

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, testing::ValuesIn(all_planted()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlantedBugs, SomeAdversaryFindsWhatIsWrongAndNoneWhatIsRight) {
  const Planted& planted = GetParam();
  const bool right = planted.bug == Bug::kNone;
  if (!right && gpu_model::kSanitized) GTEST_SKIP() << "a sanitizer ends the program: see races/";
  if (!right && !planted.executor) GTEST_SKIP() << "only ThreadSanitizer can see it: see races/";
  Experiment experiment(planted);
  int found = 0;
  for (const auto& options : gpu_model::adversaries(kSeeds)) {
    found += experiment.passes(options) ? 0 : 1;
  }
  if (right) {
    EXPECT_EQ(found, 0);
  } else {
    EXPECT_GT(found, 0);
  }
}

}  // namespace
}  // namespace planted
