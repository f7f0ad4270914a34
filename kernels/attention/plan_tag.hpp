// Words of a workspace that count: whose counts they are. A workspace comes with whatever is in it,
// and nothing is launched to clear it: a word that bears another plan's tag counts nothing yet.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fp8_sdpa::attention {

inline constexpr int kPlanTagBits = 40;

/// One that another plan, of this process or of one that used the memory before, has by chance once
/// in 5 * 10^11 times a word, by 40 bits: those of a counter that begins at the time of the first
/// plan, mixed (splitmix64: Steele, Lea and Flood, OOPSLA 2014, figure 16).
inline std::uint64_t new_plan_tag() {
  static std::atomic<std::uint64_t> plans{
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())};
  std::uint64_t x = ++plans * 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return (x ^ x >> 31) >> (64 - kPlanTagBits) | 1;  // not 0: what a reset counter holds
}

}  // namespace fp8_sdpa::attention
