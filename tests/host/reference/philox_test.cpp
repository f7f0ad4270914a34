#include "reference/inputs/philox.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fp8_sdpa::reference {
namespace {

struct KnownAnswer {
  PhiloxCounter counter;
  PhiloxKey key;
  PhiloxCounter want;
};

// The three vectors of Random123's kat_vectors for philox4x32, 10 rounds.
constexpr KnownAnswer kZeros{
    {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}};
constexpr KnownAnswer kOnes{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                            {0xffffffff, 0xffffffff},
                            {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}};
constexpr KnownAnswer kPi{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                          {0xa4093822, 0x299f31d0},
                          {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};

TEST(Philox, AnswersAsRandom123Does) {
  for (const KnownAnswer& known : {kZeros, kOnes, kPi}) {
    EXPECT_EQ(philox4x32_10(known.counter, known.key), known.want);
  }
}

TEST(Philox, WordsDoNotDependOnTheOrderOfAsking) {
  const PhiloxStream stream(7, 1);
  std::vector<std::uint32_t> forwards;
  for (std::uint64_t i = 0; i < 100; ++i) forwards.push_back(stream.word(i));
  for (std::uint64_t i = 100; i-- > 0;) EXPECT_EQ(stream.word(i), forwards[i]);
}

TEST(Philox, EveryBitOfSeedStreamAndIndexMatters) {
  const PhiloxCounter base = PhiloxStream(0, 0).block(0);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(PhiloxStream(std::uint64_t{1} << bit, 0).block(0), base) << "seed bit " << bit;
    EXPECT_NE(PhiloxStream(0, 0).block(std::uint64_t{1} << bit), base) << "index bit " << bit;
  }
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_NE(PhiloxStream(0, 1U << bit).block(0), base) << "stream bit " << bit;
  }
}

}  // namespace
}  // namespace fp8_sdpa::reference
