// Inputs that go round: how many copies, and that each is the problem.
#include "benchmarks/measure/rotation.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "benchmarks/run/goal_shapes.hpp"
#include "dispatch/variant.hpp"

namespace fp8_sdpa::bench {
namespace {

TEST(RotatingCopies, AreTwiceTheCacheTogether) {
  constexpr std::int64_t kL2 = 50'000'000;
  for (const std::int64_t bytes : {std::int64_t{6'144}, std::int64_t{786'432}, kL2 - 1}) {
    const std::int64_t copies = rotating_copies(bytes, kL2);
    EXPECT_GE(copies * bytes, 2 * kL2);
    EXPECT_LT((copies - 1) * bytes, 2 * kL2);
  }
  // What does not fit is gone by the next launch.
  EXPECT_EQ(rotating_copies(kL2, kL2), 1);
  EXPECT_EQ(rotating_copies(4 * kL2, kL2), 1);
  EXPECT_EQ(rotating_copies(1, 0), 1);
}

TEST(RotatingCopies, CountTheInputs) {
  const reference::Shape shape = shape_of({"made", 2, 3, 40, 64}, Mask::kNone);
  EXPECT_EQ(input_bytes(problem_of(shape, Dtype::kE4M3)), 3 * 2 * 3 * 40 * 64);
  EXPECT_EQ(*l2_bytes(host_executor()), 0);
}

TEST(Rotation, EachCopyIsTheProblem) {
  constexpr std::int64_t kCopies = 3;
  const auto data = reference::make_case(shape_of({"made", 1, 2, 33, 64}, Mask::kNone), 0);
  const auto workload = Workload::make(*data, host_executor());
  ASSERT_TRUE(workload.ok());
  const auto variant = find_variant("sm80_mma");
  ASSERT_TRUE(variant.ok());
  const auto own = workload->plan_for(**variant);
  ASSERT_TRUE(own.ok());
  const auto judged = workload->run(*own);
  ASSERT_TRUE(judged.ok());
  auto rotation = Rotation::make(*own, kCopies);
  ASSERT_TRUE(rotation.ok()) << rotation.status().message();
  ASSERT_EQ(rotation->size(), static_cast<std::size_t>(kCopies));
  std::set<const void*> places;
  for (int i = 0; i < 2 * kCopies; ++i) {
    const Plan& copy = rotation->next();
    EXPECT_EQ(&copy.variant(), *variant);
    EXPECT_EQ(copy.problem().o.data, own->problem().o.data);
    for (const Tensor& tensor : {copy.problem().q, copy.problem().k, copy.problem().v}) {
      places.insert(tensor.data);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 256, 0U);
    }
    const auto output = workload->run(copy);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(*output, *judged);
  }
  EXPECT_EQ(places.size(), static_cast<std::size_t>(3 * kCopies));
  EXPECT_EQ(places.count(own->problem().q.data), 0U);
}

}  // namespace
}  // namespace fp8_sdpa::bench
