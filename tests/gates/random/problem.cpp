#include "tests/gates/random/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "dispatch/variant_impl.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/inputs/philox.hpp"
#include "tests/gates/subject.hpp"

namespace fp8_sdpa::tests {
namespace {

/// Numbers of one problem, in the order in which they are asked for.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index)
      : stream_(seed, kStream), next_(index * kWordsPerProblem) {}

  std::uint32_t word() { return stream_.word(next_++); }
  /// In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return word() % static_cast<std::uint32_t>(n) == 0; }
  template <class Range>
  const auto& pick(Range&& range) {
    return *(std::begin(range) + word() % std::size(range));
  }
  /// A length: next to a multiple of 16 or anywhere, small ones more often than large ones.
  std::int64_t length(std::int64_t most) {
    std::int64_t bound = 1;
    while (bound < most && !one_in(5)) bound *= 2;
    const std::int64_t any = between(1, std::min(bound, most));
    if (one_in(2)) return any;
    constexpr std::int64_t kStep = 16;
    return std::clamp((any + kStep - 1) / kStep * kStep + between(-1, 1), std::int64_t{1}, most);
  }

 private:
  static constexpr std::uint32_t kStream = 96;
  static constexpr std::uint64_t kWordsPerProblem = 256;
  reference::PhiloxStream stream_;
  std::uint64_t next_;
};

void draw_sizes(Dice& dice, std::int64_t max_scores, reference::Shape& shape) {
  constexpr std::int64_t kMostKeys = 4096;
  constexpr std::array kGroups = {1, 1, 1, 2, 4, 8};
  constexpr std::array kHeadDims = {64, 64, 64, 128, 256};
  shape.batch = static_cast<int>(dice.between(1, 3));
  shape.heads_kv = static_cast<int>(dice.between(1, 3));
  shape.heads_q = shape.heads_kv * dice.pick(kGroups);
  shape.head_dim = dice.pick(kHeadDims);
  shape.mask = dice.one_in(3) ? Mask::kCausal : Mask::kNone;
  const std::int64_t rows = std::int64_t{shape.batch} * shape.heads_q;
  shape.seq_kv = dice.length(std::min(kMostKeys, max_scores / rows));
  const std::int64_t most_rows = std::max<std::int64_t>(1, max_scores / rows / shape.seq_kv);
  shape.seq_q = dice.one_in(2) ? std::min(shape.seq_kv, most_rows)
                               : dice.length(std::min(kMostKeys / 4, most_rows));
}

bool serves_caches(const Kernel& kernel) { return kernel.variant->impl->serves_caches; }

std::vector<Kernel> kernels_of_caches() {
  std::vector<Kernel> kernels = all_kernels();
  std::erase_if(kernels, [](const Kernel& kernel) { return !serves_caches(kernel); });
  return kernels;
}

/// Lengths of each sequence, none among them, packed or not, and pages of a size that is served.
CacheLayout draw_cache(Dice& dice, const RandomProblem& problem) {
  const reference::Shape& shape = problem.shape;
  constexpr std::array kPageSizes = {8, 16, 16, 32, 64, 64, 128, 256};
  constexpr std::array kOddSizes = {1, 3, 24, 100};  // not of sm90
  CacheLayout cache;
  const auto lengths = [&](std::int64_t most) {
    std::vector<std::int32_t> all;
    for (int b = 0; b < shape.batch; ++b) {
      all.push_back(static_cast<std::int32_t>(dice.one_in(4) ? most : dice.between(0, most)));
    }
    return all;
  };
  cache.lengths = lengths(shape.seq_kv);
  if (dice.one_in(2)) cache.queries = lengths(shape.seq_q);
  cache.packed_keys = dice.one_in(3);
  if (!cache.packed_keys && !dice.one_in(4)) {
    const bool odd = problem.variant->family != Family::kSm90 && dice.one_in(3);
    cache.page_size = odd ? dice.pick(kOddSizes) : dice.pick(kPageSizes);
  }
  cache.seed = dice.word();
  cache.token_major = !dice.one_in(3);
  cache.lse = problem.options.lse;
  cache.output = problem.options.output;
  return cache;
}

std::string describe(const CacheLayout& cache) {
  std::string text = " ragged, keys";
  for (const std::int32_t length : cache.lengths) text += " " + std::to_string(length);
  if (cache.packed_keys) text += " packed";
  if (!cache.queries.empty()) text += ", queries";
  for (const std::int32_t length : cache.queries) text += " " + std::to_string(length);
  if (cache.page_size > 0) text += ", pages of " + std::to_string(cache.page_size);
  return text + (cache.token_major ? "" : " by heads");
}

}  // namespace

std::string RandomProblem::describe() const {
  const auto text = [](auto value) { return std::to_string(value); };
  return std::string(variant->name) + " " + text(shape.batch) + "x" + text(shape.heads_q) + "/" +
         text(shape.heads_kv) + "x" + text(shape.seq_q) + "x" + text(shape.seq_kv) + "x" +
         text(shape.head_dim) + " " + name_of(shape.mask) + " " + shape.inputs.family + " " +
         name_of(dtype) + "->" + name_of(options.output) +
         (cache                    ? tests::describe(*cache)
          : options.sequence_major ? " (B,S,H,D)"
                                   : " (B,H,S,D)") +
         (options.padded && !cache ? " padded" : "") +
         (!options.lse                        ? ""
          : options.lse_sum == LseSum::kExact ? " lse of exact sums"
                                              : " lse") +
         (block_descales  ? " scales of blocks"
          : vary_descales ? " scales"
                          : "") +
         " scale " + text(softmax_scale);
}

RandomProblem random_problem(std::uint64_t seed, std::uint64_t index, const Device& device,
                             std::int64_t max_scores) {
  Dice dice(seed, index);
  RandomProblem problem;
  static const std::vector<Kernel> kKernels = all_kernels();
  static const std::vector<Kernel> kOfCaches = kernels_of_caches();
  const Kernel& kernel = dice.pick(dice.one_in(5) ? kOfCaches : kKernels);
  problem.variant = kernel.variant;
  draw_sizes(dice, max_scores, problem.shape);
  if (kernel.variant->family == Family::kSm90) {  // for a head dim, and for few keys or many
    problem.shape.head_dim = kernel.head_dim;
    if (kernel.few_keys || (kernel.many_keys && problem.shape.seq_kv <= 128)) {
      problem.shape.seq_kv = kernel.keys((problem.shape.seq_kv - 1) % 128 + 1);
    }
  }
  const int group = problem.shape.heads_q / problem.shape.heads_kv;
  problem.shape.seq_q = kernel.rows(problem.shape.seq_q * group) / group;
  problem.shape.name = "random_" + std::to_string(index);
  problem.shape.inputs.family = std::string(dice.pick(reference::input_families()).name);
  problem.dtype = dice.one_in(3) ? Dtype::kE5M2 : Dtype::kE4M3;
  if (kernel.variant->int8) problem.dtype = Dtype::kInt8;
  problem.options.output = dice.one_in(2) ? Dtype::kBFloat16 : Dtype::kHalf;
  const bool writes_codes =
      kernel.variant->family == Family::kSm90 || kernel.variant->family == Family::kDecode;
  if (writes_codes && dice.one_in(4)) problem.options.output = Dtype::kE4M3;
  problem.options.sequence_major = dice.one_in(2);
  problem.options.padded = dice.one_in(2);
  problem.options.lse = !dice.one_in(8);
  problem.options.lse_sum = kernel.lse_sum;
  problem.options.rerun = dice.one_in(4);
  problem.options.budgets_only = true;
  problem.vary_descales = dice.one_in(2);
  problem.softmax_scale = std::ldexp(1.0F + static_cast<float>(dice.between(0, 7)) / 8.0F, -1) /
                          std::sqrt(static_cast<float>(problem.shape.head_dim));
  problem.input_seed = dice.word();
  constexpr std::array kSchedules = {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom,
                                     Schedule::kThreadPriority, Schedule::kWarpPriority};
  problem.executor.schedule = dice.pick(kSchedules);
  problem.executor.asynchrony = dice.one_in(2) ? Asynchrony::kEager : Asynchrony::kLate;
  problem.executor.seed = dice.word();

  const Status status =
      serves(*problem.variant, problem.shape, problem.dtype, device, problem.options);
  if (!status.ok()) {
    problem.declined = status.message();
    if (!is_known_decline(status)) return problem;
    const auto declines = [&](Dtype dtype) {
      return !serves(*problem.variant, problem.shape, dtype, device, problem.options).ok();
    };
    if (declines(kernel.codes())) {
      problem.shape.heads_q = problem.shape.heads_kv;
      problem.shape.head_dim = kernel.head_dim;
      problem.shape.mask = Mask::kNone;
    }
    if (declines(problem.dtype)) problem.dtype = kernel.codes();
  }
  problem.block_descales = problem.variant->impl->serves_blocks && !dice.one_in(5);
  if (serves_caches(kernel) && !dice.one_in(5)) problem.cache = draw_cache(dice, problem);
  return problem;
}

std::shared_ptr<const reference::CaseData> data_of(const RandomProblem& problem) {
  reference::CaseData data = codes_of(problem.shape, problem.input_seed, problem.dtype);
  data.softmax_scale = problem.softmax_scale;
  if (problem.block_descales) {
    vary_block_descales(data);
  } else if (problem.vary_descales) {
    vary_descales(data);
  }
  return reference::from_codes(std::move(data));
}

}  // namespace fp8_sdpa::tests
