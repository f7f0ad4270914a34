// What a launch takes, predicted from a variant's shape: the ground of the library's choice.
//
// Persistent blocks work off work tiles of tile_m rows as schedule.hpp says. A multiprocessor makes
// as many scores a microsecond as the kernel's row of tile_shapes.def says, and a launch has its
// own cost, measured on an H200 inside a CUDA graph (results/h200/hopper/exploration at commit
// 6c7d156: latency_version_3.txt): (B, H, S, D) in microseconds, (1, 1, 32, 64) 4.5, (1, 8, 512,
// 64) 7.7 with 64 rows a work tile and no less with the causal mask, (1, 8, 2048, 64) 19.6 and 20.6
// with 128.
#include <algorithm>
#include <climits>
#include <cstdint>

#include "sm90/config.hpp"
#include "sm90/sm90.hpp"
#include "sm90/work/schedule.hpp"

namespace fp8_sdpa::sm90 {
namespace {

constexpr double kLaunchUs = 3.2;
constexpr double kMergeUs = 1.3;         // of warpgroups that share rows, once a work tile
constexpr double kTailUs = 2.0;          // KV splits of a tail: written, counted, merged
constexpr double kPreTransposeUs = 1.0;  // a kernel that transposes V, beside what it moves
constexpr double kPreTransposeBytesPerUs = 2.3e6;
// Until enough of V is transposed: under the causal mask the first work tiles are of all heads,
// each with few blocks to transpose it. Such that the faster variant is chosen in version_9/step_2.
constexpr double kSharedTransposeUs = 7.0;
constexpr double kSharedTransposeCausalUs = 14.0;

/// Consumer warpgroups that keep a multiprocessor busy: exponentials bind at head dim 64, and take
/// more of them to overlap.
int busy_warpgroups(int head_dim) { return head_dim == 64 ? 3 : 2; }

/// KV tiles of the work tile that is dealt `work tile`-th, longest first; the warpgroups that share
/// its rows have equally many.
std::int64_t tiles_of_work_tile(const Config& config, const Problem& p, std::int64_t work_tile) {
  const std::int64_t group_keys = std::int64_t{config.tile_n} * config.kv_splits;
  std::int64_t keys = p.seq_kv;
  if (p.mask == Mask::kCausal) {
    const std::int64_t tile_m = config.tile_m();
    const std::int64_t tiles_m = (p.seq_q + tile_m - 1) / tile_m;
    const std::int64_t tile = tiles_m - 1 - work_tile / (std::int64_t{p.batch} * p.heads_q);
    const std::int64_t rows = std::min(p.seq_q, (tile + 1) * tile_m);
    keys = std::clamp<std::int64_t>(rows + p.seq_kv - p.seq_q, 0, p.seq_kv);
  }
  return (keys + group_keys - 1) / group_keys * config.kv_splits;
}

/// What comes beside the work tiles of the kernel.
double beside_us(const Config& config, const Problem& p, const Schedule& schedule) {
  const double tail = schedule.splits() > 0 ? kTailUs : 0.0;
  if (!config.v_in_workspace()) return tail;
  if (config.transposes_once())
    return tail + (p.mask == Mask::kCausal ? kSharedTransposeCausalUs : kSharedTransposeUs);
  const double v = static_cast<double>(p.seq_kv) * p.batch * p.heads_kv * p.head_dim;
  return tail + kPreTransposeUs + v / kPreTransposeBytesPerUs;
}

}  // namespace

double predicted_us(const TileShape& shape, const Problem& p, int sm_count,
                    const PlanOptions& options) {
  const Config& config = shape.config;
  const std::int64_t tile_m = config.tile_m();
  constexpr std::int64_t kMaxWorkTiles = INT_MAX / 2;  // more are as good as these
  const std::int64_t work_tiles =
      std::min(kMaxWorkTiles, (p.seq_q + tile_m - 1) / tile_m * p.batch * p.heads_q);
  const auto tiles = [&](int work_tile) {
    return static_cast<int>(tiles_of_work_tile(config, p, work_tile));
  };
  const RangeCosts costs = range_costs(config, p.head_dim);
  const bool may_split = may_share_rows(options) && !config.two_terms;
  const Makespan makespan =
      may_split ? make_schedule(static_cast<int>(work_tiles), sm_count, tiles, costs)
                : make_whole_schedule(static_cast<int>(work_tiles), sm_count, tiles, costs);
  const double busy =
      std::min(1.0, static_cast<double>(config.consumers()) / busy_warpgroups(p.head_dim));
  // The first work tile's cost beside its KV tiles is in that of the launch.
  const double scores =
      (makespan.tiles - costs.range) * static_cast<double>(tile_m * config.tile_n);
  return kLaunchUs + (config.kv_splits > 1 ? kMergeUs * makespan.schedule.rounds : 0.0) +
         beside_us(config, p, makespan.schedule) + scores / (busy * shape.scores_per_us);
}

}  // namespace fp8_sdpa::sm90
