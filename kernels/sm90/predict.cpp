// What a launch takes, predicted from a variant's shape: the ground of the library's choice.
//
// Persistent blocks work off items of tile_m rows, in rounds of one item a multiprocessor; the
// blocks of a cluster each have their share of an item's KV tiles. A multiprocessor makes so many
// scores a microsecond, and a launch has its own cost; nothing is over before the longest item.
// Measured on an H200 (results/h200/hopper/exploration): in a CUDA graph, (B, H, S, D) in
// microseconds, (1, 1, 32, 64) 4.5, (1, 8, 512, 64) 8.0 with 64 rows an item and no less with the
// causal mask, (1, 8, 2048, 64) 22.9 with 128; at 16k keys, in TFLOP/s, 605 at head dim 64 and 648
// with integer maxima and a column of ones, 840 at 128, 835 at 256.
#include <algorithm>
#include <cstdint>

#include "sm90/config.hpp"
#include "sm90/sm90.hpp"

namespace fp8_sdpa::sm90 {
namespace {

constexpr double kLaunchUs = 4.0;
constexpr double kMergeUs = 1.0;  // of warpgroups that share rows, once an item

/// Consumer warpgroups that keep a multiprocessor busy: exponentials bind at head dim 64, and take
/// more of them to overlap.
int busy_warpgroups(int head_dim) {
  return head_dim == 64 ? 3 : 2;
}

/// Of a busy multiprocessor: TFLOP/s / (4 head_dim 132), less what a launch costs besides.
double scores_per_us(const Config& config, int head_dim) {
  switch (head_dim) {
    case 64: return config.ones_column && config.integer_max ? 18200.0 : 17000.0;
    case 128: return 12400.0;
    default: return 6200.0;
  }
}

/// (row, key) pairs that the mask leaves, as a share of all.
double seen_share(const Problem& p) {
  if (p.mask != Mask::kCausal) return 1.0;
  const auto rows = static_cast<double>(p.seq_q);
  const auto keys = static_cast<double>(p.seq_kv);
  // Rows with keys see from first to seq_kv of them.
  const double first = std::max(0.0, keys - rows);
  return std::min(rows, keys) / rows * (first + keys) / 2.0 / keys;
}

double predict(const Config& config, const Problem& p, int sm_count) {
  const std::int64_t tile_m = config.tile_m();
  const std::int64_t group_keys = std::int64_t{config.tile_n} * config.sharers();
  const std::int64_t items = (p.seq_q + tile_m - 1) / tile_m * p.batch * p.heads_q;
  const std::int64_t rounds = (items * config.cluster_blocks + sm_count - 1) / sm_count;
  const std::int64_t keys = (p.seq_kv + group_keys - 1) / group_keys * group_keys;
  const double busy =
      std::min(1.0, static_cast<double>(config.consumers()) / busy_warpgroups(p.head_dim));
  const double longest = static_cast<double>(tile_m * keys) / config.cluster_blocks;
  const double scores = std::max(longest, seen_share(p) * static_cast<double>(rounds) * longest);
  return kLaunchUs + (config.sharers() > 1 ? kMergeUs * static_cast<double>(rounds) : 0.0) +
         scores / (busy * scores_per_us(config, p.head_dim));
}

}  // namespace

template <class Tag>
double predicted_us(const Problem& problem, int sm_count) {
  return predict(Tag::config(problem.head_dim), problem, sm_count);
}

#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) \
  template double predicted_us<tag::NAME>(const Problem&, int);
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT

}  // namespace fp8_sdpa::sm90
