// Words that count in a workspace which nobody has cleared (sm90/load/shared_transpose.cuh), by two
// threads whose turns are played.
#include <gtest/gtest.h>

#include <cstdint>

#include "sm90/load/shared_transpose.cuh"

namespace fp8_sdpa::tests {
namespace {

TEST(UnitCounts, TwoThatFindAWordOfOthersBothCount) {
  sm90::Params p{};
  for (const std::uint64_t tag : {1ULL, 0x123456789AULL, 0xEDCBA98765ULL}) {
    p.plan_tag = tag;
    const std::uint64_t none = sm90::no_units(p);
    for (const std::uint64_t left : {std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{1},
                                     none ^ std::uint64_t{1} << 24, none + (1U << 24)}) {
      std::uint64_t word = left;
      const std::uint64_t first = word++;
      const std::uint64_t second = word++;
      EXPECT_EQ(sm90::counted(p, &word, first), 0U) << tag << " " << left;
      EXPECT_EQ(sm90::counted(p, &word, second), 1U) << tag << " " << left;
      EXPECT_EQ(word, none + 2) << tag << " " << left;
    }
  }
}

}  // namespace
}  // namespace fp8_sdpa::tests
