// Samples of several variants in one random order, so that a drift of the machine (clocks, heat,
// neighbours) meets all of them alike.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// `rounds` rounds, each of which has every index in [0, count) once, shuffled anew. The same for
/// the same seed, on every machine.
std::vector<int> interleaved_order(int count, int rounds, std::uint64_t seed);

/// Takes one sample, in microseconds, of the variant with this index.
using Sampler = std::function<Result<double>(int)>;

/// Series of samples, one for each variant; or what went wrong, and of which variant.
struct InterleavedSamples {
  std::vector<std::vector<double>> samples_us;
  Status status;
  int failed = -1;
};

/// Takes `rounds` samples of each of `count` variants in interleaved_order(). Ends with the first
/// that fails.
InterleavedSamples sample_interleaved(int count, int rounds, std::uint64_t seed,
                                      const Sampler& sample);

}  // namespace fp8_sdpa::bench
