// Words that count in a workspace which nobody has cleared (attention/tagged_count.hpp), by two
// threads whose turns are played.
#include <gtest/gtest.h>

#include <cstdint>

#include "attention/tagged_count.hpp"

namespace fp8_sdpa::tests {
namespace {

TEST(UnitCounts, TwoThatFindAWordOfOthersBothCount) {
  for (const std::uint64_t tag : {1ULL, 0x123456789AULL, 0xEDCBA98765ULL}) {
    const std::uint64_t none = attention::no_count(tag);
    for (const std::uint64_t left : {std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{1},
                                     none ^ std::uint64_t{1} << 24, none + (1U << 24)}) {
      std::uint64_t word = left;
      const std::uint64_t first = word++;
      const std::uint64_t second = word++;
      EXPECT_EQ(attention::counted(&word, none, first), 0U) << tag << " " << left;
      EXPECT_EQ(attention::counted(&word, none, second), 1U) << tag << " " << left;
      EXPECT_EQ(word, none + 2) << tag << " " << left;
    }
  }
}

}  // namespace
}  // namespace fp8_sdpa::tests
