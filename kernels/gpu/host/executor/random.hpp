// SplitMix64: the executor's source of adversarial choices. Small, seedable, the same everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace gpu::host {

/// Sebastiano Vigna's SplitMix64 (prng.di.unimi.it/splitmix64.c).
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  /// 0 to bound - 1. The bias of the modulus is below 2^-32 for the bounds in use.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(next() % bound); }

  /// Fisher-Yates.
  template <class T>
  void shuffle(std::span<T> items) {
    for (auto i = static_cast<std::uint32_t>(items.size()); i > 1; --i) {
      std::swap(items[i - 1], items[below(i)]);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace gpu::host
