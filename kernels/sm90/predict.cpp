// What a launch takes, predicted from a variant's shape: the ground of the library's choice.
//
// Persistent blocks work off items of tile_m rows, in rounds of one item a multiprocessor; within
// an item the warpgroups that share rows halve or quarter the row of KV tiles. A multiprocessor
// makes so many scores a microsecond, and a launch has its own cost. Measured
// on an H200 in a CUDA graph, (B, H, S, D) in microseconds: (1, 1, 32, 64) 4.5, (1, 8, 512, 64) 8.0
// with 64 rows an item, (1, 8, 2048, 64) 22.9 with 128; at 4k keys and more 601, 886 and 1200
// TFLOP/s with head dims 64, 128 and 256.
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

/// Of a busy multiprocessor.
double scores_per_us(int head_dim) {
  switch (head_dim) {
    case 64: return 17000.0;
    case 128: return 13000.0;
    default: return 8900.0;
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
  const std::int64_t group_keys = std::int64_t{config.tile_n} * config.key_groups;
  const std::int64_t items = (p.seq_q + tile_m - 1) / tile_m * p.batch * p.heads_q;
  const std::int64_t rounds = (items + sm_count - 1) / sm_count;
  const std::int64_t keys = (p.seq_kv + group_keys - 1) / group_keys * group_keys;
  const double busy =
      std::min(1.0, static_cast<double>(config.consumers()) / busy_warpgroups(p.head_dim));
  const double scores = static_cast<double>(rounds * tile_m) * static_cast<double>(keys);
  return kLaunchUs + (config.key_groups > 1 ? kMergeUs * static_cast<double>(rounds) : 0.0) +
         seen_share(p) * scores / (busy * scores_per_us(p.head_dim));
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
