#include "benchmarks/statistics/bootstrap.hpp"

#include <algorithm>
#include <cmath>

#include "benchmarks/statistics/stats.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::bench {
namespace {

/// Philox streams 0 and up are the tensors' (reference/inputs/inputs.hpp); this one is nobody's.
constexpr std::uint32_t kBootstrapStream = 0x626F6F74U;

/// Words of one stream, one after the other.
class Words {
 public:
  explicit Words(std::uint64_t seed) : stream_(seed, kBootstrapStream) {}

  /// A number below `count`. The bias of the product is at most count * 2^-32.
  std::size_t below(std::size_t count) {
    constexpr int kWordBits = 32;
    if (at_ == block_.size()) {
      block_ = stream_.block(next_++);
      at_ = 0;
    }
    return static_cast<std::size_t>((std::uint64_t{block_[at_++]} * count) >> kWordBits);
  }

 private:
  reference::PhiloxStream stream_;
  reference::PhiloxCounter block_{};
  std::size_t at_ = block_.size();
  std::uint64_t next_ = 0;
};

/// The median of a series in any order, which is left in another.
double median_of(std::vector<double>& values) {
  const std::size_t middle = values.size() / 2;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(middle);
  std::nth_element(values.begin(), at, values.end());
  if (values.size() % 2 != 0) return *at;
  return (*std::max_element(values.begin(), at) + *at) / 2;
}

}  // namespace

Result<std::vector<double>> bootstrap_medians(const std::vector<double>& samples,
                                              const BootstrapOptions& options) {
  if (samples.empty()) return invalid_argument("bootstrap: no samples");
  if (std::any_of(samples.begin(), samples.end(), [](double v) { return std::isnan(v); })) {
    return invalid_argument("bootstrap: a sample is NaN");
  }
  if (options.block == 0 || options.resamples < 1) {
    return invalid_argument("bootstrap: expected blocks and resamples of at least 1");
  }
  const std::size_t block = std::min(options.block, samples.size());
  const std::size_t blocks = (samples.size() + block - 1) / block;
  Words words(options.seed);
  std::vector<double> medians;
  medians.reserve(static_cast<std::size_t>(options.resamples));
  std::vector<double> drawn;
  drawn.reserve(samples.size() + block);
  for (int i = 0; i < options.resamples; ++i) {
    drawn.clear();
    while (drawn.size() < samples.size()) {
      const std::size_t first = words.below(blocks) * block;
      const std::size_t last = std::min(first + block, samples.size());
      drawn.insert(drawn.end(), samples.begin() + static_cast<std::ptrdiff_t>(first),
                   samples.begin() + static_cast<std::ptrdiff_t>(last));
    }
    drawn.resize(samples.size());
    medians.push_back(median_of(drawn));
  }
  std::sort(medians.begin(), medians.end());
  return medians;
}

Result<Interval> bootstrap_median_interval(const std::vector<double>& samples,
                                           const BootstrapOptions& options) {
  if (!(options.confidence > 0 && options.confidence < 1)) {
    return invalid_argument("bootstrap: expected a confidence between 0 and 1");
  }
  const auto medians = bootstrap_medians(samples, options);
  if (!medians.ok()) return medians.status();
  const double tail = (1 - options.confidence) / 2;
  return Interval{quantile(*medians, tail), quantile(*medians, 1 - tail)};
}

}  // namespace fp8_sdpa::bench
