// Division by a number that is the same for a whole launch.
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"

namespace fp8_sdpa::attention {

/// Division as a multiplication: Granlund and Montgomery, "Division by Invariant Integers using
/// Multiplication", PLDI 1994, figure 4.1. An integer division by a variable takes a GPU some 30
/// instructions, each of which waits for the one before.
struct Divisor {
  int value = 1;
  int shift = 0;
  std::uint32_t multiplier = 1;
};

/// Of a `value` of at least 1: 2^32 (2^shift - value) / value + 1, where 2^shift is the least power
/// of two that is not below it.
constexpr Divisor divisor(int value) {
  Divisor made{value, 0, 0};
  while ((std::int64_t{1} << made.shift) < value) ++made.shift;
  const std::uint64_t above = (std::uint64_t{1} << made.shift) - static_cast<std::uint64_t>(value);
  made.multiplier =
      static_cast<std::uint32_t>((above << 32) / static_cast<std::uint64_t>(value) + 1);
  return made;
}

inline namespace GPU_BACKEND {

/// x / d.value, of x that is not negative.
GPU_SHARED_FN int quotient(int x, const Divisor& d) {
  const auto n = static_cast<std::uint32_t>(x);
  const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * d.multiplier) >> 32);
  return static_cast<int>((high + n) >> d.shift);
}

}  // namespace GPU_BACKEND

}  // namespace fp8_sdpa::attention
