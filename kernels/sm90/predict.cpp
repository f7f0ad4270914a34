// What a launch takes, predicted from a variant's shape: the ground of the library's choice.
//
// Persistent blocks work off items of tile_m rows as schedule.hpp says; the blocks of a cluster
// each have their share of an item's KV tiles. A multiprocessor makes so many scores a microsecond,
// and a launch has its own cost. Measured on an H200
// (results/h200/hopper/exploration/throughput_version_3.txt and latency_version_3.txt, at commit
// 6c7d156): in a CUDA
// graph, (B, H, S, D) in microseconds, (1, 1, 32, 64) 4.5, (1, 8, 512, 64) 7.7 with 64 rows an item
// and no less with the causal mask, (1, 8, 2048, 64) 19.6 and 20.6 with 128, 23.2 by a cluster.
// Rates of variants with a column of ones at head dims 128 and 256, and of turns there, are of
// version 5 (version_5/step_6 and step_8 in the same folder), with V turned before at 256 of
// version 6 (version_6/step_5), with chords at 64 of version 14 (version_14/step_4 and step_5).
#include <algorithm>
#include <climits>
#include <cstdint>

#include "sm90/config.hpp"
#include "sm90/sm90.hpp"
#include "sm90/work/schedule.hpp"

namespace fp8_sdpa::sm90 {
namespace {

constexpr double kLaunchUs = 3.2;
constexpr double kMergeUs = 1.3;    // of warpgroups that share rows, once an item
constexpr double kClusterUs = 4.0;  // what a cluster's launch and its merge take besides
constexpr double kTailUs = 2.0;     // parts of a tail: written, counted, merged
constexpr double kPrepareUs = 1.0;  // a kernel that turns V, beside what it moves
constexpr double kPrepareBytesPerUs = 2.3e6;
// Until enough of V is turned: under the causal mask the first items are of all heads, each with
// few blocks to turn it. Such that the faster variant is chosen in version_9/step_2.
constexpr double kOnceUs = 7.0;
constexpr double kOnceCausalUs = 14.0;

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
      if (config.prepared_values) return 24400.0;
      if (config.chords != 0) return 23900.0;
      if (config.ones_column) return config.exp_turns ? 19600.0 : 20000.0;
      return overlap ? 15500.0 : config.exp_turns ? 16000.0 : 18500.0;
    case 128:
      if (config.ones_column) return 15900.0;
      return config.exp_turns ? 15000.0 : overlap ? 12000.0 : 10000.0;
    default:
      if (config.prepared_values) return 9900.0;
      if (config.ones_column) return 9000.0;  // at 4k keys no more than 8200 (version_7/step_6)
      return config.exp_turns ? 8900.0 : 8500.0;
  }
}

/// KV tiles of the item that is dealt `item`-th, longest first; the warpgroups that share its rows
/// have equally many.
std::int64_t tiles_of_item(const Config& config, const Problem& p, std::int64_t item) {
  const std::int64_t group_keys = std::int64_t{config.tile_n} * config.sharers();
  std::int64_t keys = p.seq_kv;
  if (p.mask == Mask::kCausal) {
    const std::int64_t tile_m = config.tile_m();
    const std::int64_t tiles_m = (p.seq_q + tile_m - 1) / tile_m;
    const std::int64_t tile = tiles_m - 1 - item / (std::int64_t{p.batch} * p.heads_q);
    const std::int64_t rows = std::min(p.seq_q, (tile + 1) * tile_m);
    keys = std::clamp<std::int64_t>(rows + p.seq_kv - p.seq_q, 0, p.seq_kv);
  }
  return (keys + group_keys - 1) / group_keys * config.key_groups;
}

/// What comes beside the items of the kernel.
double beside_us(const Config& config, const Problem& p, const Schedule& schedule) {
  const double tail = schedule.parts() > 0 ? kTailUs : 0.0;
  if (!config.prepared_values) return tail;
  if (config.once) return tail + (p.mask == Mask::kCausal ? kOnceCausalUs : kOnceUs);
  const double v = static_cast<double>(p.seq_kv) * p.batch * p.heads_kv * p.head_dim;
  return tail + kPrepareUs + v / kPrepareBytesPerUs;
}

double predict(const Config& config, const Problem& p, int sm_count, const PlanOptions& options) {
  const std::int64_t tile_m = config.tile_m();
  constexpr std::int64_t kMaxItems = INT_MAX / 2;  // more are as good as these
  const std::int64_t items =
      std::min(kMaxItems, (p.seq_q + tile_m - 1) / tile_m * p.batch * p.heads_q);
  const auto tiles = [&](int item) { return static_cast<int>(tiles_of_item(config, p, item)); };
  const PieceCosts costs = piece_costs(config, p.head_dim);
  const bool cluster = config.cluster_blocks > 1;
  const bool may_split = !cluster && may_share_rows(options) && !few_keys(config, p.seq_kv);
  const Makespan makespan =
      may_split ? make_schedule(static_cast<int>(items), sm_count, tiles, costs)
                : make_whole_schedule(static_cast<int>(items), sm_count / config.cluster_blocks,
                                      tiles, costs);
  const double busy =
      std::min(1.0, static_cast<double>(config.consumers()) / busy_warpgroups(p.head_dim));
  // The first item's cost beside its tiles is in that of the launch.
  const double scores =
      (makespan.tiles - costs.piece) * static_cast<double>(tile_m * config.tile_n);
  return kLaunchUs + (cluster ? kClusterUs : 0.0) +
         (config.sharers() > 1 ? kMergeUs * makespan.schedule.rounds : 0.0) +
         beside_us(config, p, makespan.schedule) +
         scores / (busy * scores_per_us(config, p.head_dim));
}

}  // namespace

template <class Tag>
double predicted_us(const Problem& problem, int sm_count, const PlanOptions& options) {
  return predict(Tag::config(problem.head_dim), problem, sm_count, options);
}

#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) \
  template double predicted_us<tag::NAME>(const Problem&, int, const PlanOptions&);
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT

}  // namespace fp8_sdpa::sm90
