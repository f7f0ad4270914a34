// Philox4x32-10: a counter-based random number generator.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11,
// section 3.3.
#pragma once

#include <array>
#include <cstdint>

namespace fp8_sdpa::reference {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Four random words of one counter and key. Integer arithmetic alone: the same bits everywhere.
constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;  // the golden ratio
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;  // sqrt(3) - 1
  constexpr int kHalf = 32;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> kHalf) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> kHalf) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

/// The stream of tensor `stream` under `seed`: word i depends on (seed, stream, i) alone, never on
/// the order in which words are asked for. Words come in blocks of four.
class PhiloxStream {
 public:
  static constexpr int kWordsPerBlock = 4;

  constexpr PhiloxStream(std::uint64_t seed, std::uint32_t stream)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        stream_(stream) {}

  /// Words 4 * index to 4 * index + 3.
  constexpr PhiloxCounter block(std::uint64_t index) const {
    return philox4x32_10(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), stream_, 0},
        key_);
  }
  /// Word `index`.
  constexpr std::uint32_t word(std::uint64_t index) const {
    return block(index / kWordsPerBlock)[index % kWordsPerBlock];
  }

 private:
  PhiloxKey key_;
  std::uint32_t stream_;
};

}  // namespace fp8_sdpa::reference
