// What a launch takes, predicted from a variant's shape: the ground of the library's choice.
//
// Persistent blocks work off items of tile_m rows, in rounds of one item a multiprocessor; the
// blocks of a cluster each have their share of an item's KV tiles. A multiprocessor makes so many
// scores a microsecond, and a launch has its own cost; nothing is over before the longest item.
// Measured on an H200 (results/h200/hopper/exploration/throughput_version_3.txt and
// latency_version_3.txt): in a CUDA graph, (B, H, S, D) in microseconds, (1, 1, 32, 64) 4.5,
// (1, 8, 512, 64) 7.7 with 64 rows an item and no less with the causal mask, (1, 8, 2048, 64) 19.6
// and 20.6 with 128, 23.2 by a cluster.
#include <algorithm>
#include <cstdint>

#include "sm90/config.hpp"
#include "sm90/sm90.hpp"

namespace fp8_sdpa::sm90 {
namespace {

constexpr double kLaunchUs = 3.6;
constexpr double kMergeUs = 1.3;    // of warpgroups that share rows, once an item
constexpr double kClusterUs = 4.0;  // what a cluster's launch and its merge take besides

/// Consumer warpgroups that keep a multiprocessor busy: exponentials bind at head dim 64, and take
/// more of them to overlap.
int busy_warpgroups(int head_dim) {
  return head_dim == 64 ? 3 : 2;
}

/// Of a busy multiprocessor, at 16k keys: TFLOP/s / (4 head_dim 132), and no more than that.
double scores_per_us(const Config& config, int head_dim) {
  const bool overlap = config.pipeline == Pipeline::kOverlap;
  switch (head_dim) {
    case 64:
      if (config.ones_column) return 20000.0;
      return overlap ? 15500.0 : config.exp_turns ? 16000.0 : 17500.0;
    case 128: return config.exp_turns ? 14500.0 : overlap ? 12000.0 : 10000.0;
    default: return config.exp_turns ? 8000.0 : 7800.0;
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
  return kLaunchUs + (config.cluster_blocks > 1 ? kClusterUs : 0.0) +
         (config.sharers() > 1 ? kMergeUs * static_cast<double>(rounds) : 0.0) +
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
