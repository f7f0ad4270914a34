#include "benchmarks/measure/interleave.hpp"

#include <numeric>
#include <random>
#include <utility>

namespace fp8_sdpa::bench {

std::vector<int> interleaved_order(int count, int rounds, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> round(static_cast<std::size_t>(count));
  std::vector<int> order;
  order.reserve(round.size() * static_cast<std::size_t>(rounds));
  for (int r = 0; r < rounds; ++r) {
    std::iota(round.begin(), round.end(), 0);
    // Fisher and Yates by hand: the standard leaves std::shuffle's order to the library. The bias
    // of the remainder is 2^-64 * count.
    for (std::size_t i = round.size(); i > 1; --i) std::swap(round[i - 1], round[random() % i]);
    order.insert(order.end(), round.begin(), round.end());
  }
  return order;
}

InterleavedSamples sample_interleaved(int count, int rounds, std::uint64_t seed,
                                      const Sampler& sample) {
  InterleavedSamples out;
  out.samples_us.resize(static_cast<std::size_t>(count));
  for (auto& series : out.samples_us) series.reserve(static_cast<std::size_t>(rounds));
  for (const int index : interleaved_order(count, rounds, seed)) {
    const Result<double> time = sample(index);
    if (!time.ok()) {
      out.status = time.status();
      out.failed = index;
      return out;
    }
    out.samples_us[static_cast<std::size_t>(index)].push_back(*time);
  }
  return out;
}

}  // namespace fp8_sdpa::bench
