// Which block does what: tables that the plan computes and the kernel's blocks read.
//
// A work tile is a tile of query rows of one (batch, head). Every block takes `rounds` whole work
// tiles; the rest, the tail, is shared out by KV tiles, so that all blocks end at about the same
// time (Stream-K, for matrix products: Osama et al., arXiv 2301.03598). A block's share of the tail
// may begin and end inside a work tile; the KV splits of such a work tile are merged by a kernel
// behind this one (merge_splits.cuh).
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "gpu/backend.hpp"
#include "sm90/config.hpp"

namespace fp8_sdpa::sm90 {

/// Multiprocessors, and so blocks, that a tail can be shared out to.
inline constexpr int kMaxTailBlocks = 144;
/// What a kernel serves at most: rounds of a grid past the last work tile must not overflow either.
inline constexpr std::int64_t kMaxWorkTiles = INT_MAX / 2;

/// Where a block's share of the tail begins; it ends where the next block's begins.
struct TailPlace {
  std::int16_t work_tile;  ///< of the tail
  std::int16_t split;      ///< of that work tile: KV splits before this one
  int tile;                ///< the first KV tile of the work tile that is this block's
};

struct Schedule {
  int rounds = 0;  ///< whole work tiles of each block; the last round may have fewer if no tail is
  int tail_work_tiles = 0;  ///< after the rounds
  TailPlace tail[kMaxTailBlocks + 1] = {};
  /// KV splits of the tail's work tiles before this one. A work tile that is not cut has none.
  std::int16_t first_split[kMaxTailBlocks + 1] = {};

  int splits() const { return first_split[tail_work_tiles]; }
};

/// What a work tile is to the blocks that share it out.
struct WorkTileSize {
  int tiles;          ///< KV tiles
  double part = 1.0;  ///< of a KV tile's time, what one of these takes: part_of_tile()
};
using WorkTileSizes = std::function<WorkTileSize(int work_tile)>;

/// What work costs beside its KV tiles, in KV tiles.
struct RangeCosts {
  double range;  ///< of a tile range: loading Q, the first scores, writing O
  double split;  ///< of a KV split: being written to global memory; as much again to be read
  double merge;  ///< of the kernel that reads them
  double load;   ///< of a load of that kernel that waits for the one before
};

/// Of a work tile, on the average: lanes share more (merge_splits.cuh).
inline constexpr int kFewSplits = 12;

/// A schedule and how long, in KV tiles, the block takes that ends last.
struct Makespan {
  double tiles = 0.0;
  Schedule schedule;
};

/// Work tiles come in passes of so many (batch, head) pairs each, few enough for their K and V to
/// stay in the L2 cache. The sizes that they may have, the largest first. `heads` are a batch's, of
/// which those that share tiles are one.
std::vector<std::int64_t> pass_sizes(const Problem& problem, int heads, Backend backend);
/// Of these sizes the one whose schedule ends first, and that schedule; of equal ones the smallest.
struct Passes {
  std::int64_t heads = 0;
  Makespan makespan;
};
Passes shortest_passes(const std::vector<std::int64_t>& sizes,
                       const std::function<Makespan(std::int64_t heads)>& schedule_of);

/// The work tile of a block in a round of whole work tiles: there and back, so that sums even out
/// where lengths change steadily.
inline namespace GPU_BACKEND {
GPU_SHARED_FN int work_tile_of_round(int round, int block, int blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}
}  // namespace GPU_BACKEND

/// Of a kernel, seen on an H200.
constexpr RangeCosts range_costs(const Config& config, int head_dim) {
  // A multiprocessor reads and writes the L2 cache at 64 bytes a clock, and makes so many scores.
  const double scores_a_clock = head_dim == 64 ? 11.5 : head_dim == 128 ? 9.0 : 5.1;
  const double tile = config.tile_m() * config.tile_n / scores_a_clock;
  // Clocks of the kernel that merges, rounded by hand from fits that had them as terms.
  const double merge = head_dim == 64 ? 6000.0 : head_dim == 128 ? 3800.0 : 2900.0;
  const double bytes = config.scaled_max() ? 4.0 : 2.0;  // of an accumulator: WarpSplit
  return {3000.0 / tile, config.tile_m() * head_dim * bytes / 64.0 / tile, merge / tile,
          1000.0 / tile};
}

/// Of a KV tile's time, what one takes of whose tile of rows so many are there: 0.6 of the share of
/// a consumer warpgroup that has none is saved. A launch of few keys is all latency.
constexpr double part_of_tile(const Config& config, std::int64_t rows) {
  constexpr double kSaved = 0.6;
  const std::int64_t groups = (rows + kWarpgroupRows - 1) / kWarpgroupRows;
  if (groups >= config.row_groups || config.two_terms) return 1.0;
  return 1.0 - kSaved * (1.0 - static_cast<double>(groups) / config.row_groups);
}

/// Shares `work tiles` out to `blocks` blocks, with a tail if that is faster. `sizes(i)` is the
/// size of work tile i; one without any KV tiles counts as one tile that cannot be cut.
Makespan make_schedule(int work_tiles, int blocks, const WorkTileSizes& sizes,
                       const RangeCosts& costs);
/// The same without a tail.
Makespan make_whole_schedule(int work_tiles, int blocks, const WorkTileSizes& sizes,
                             const RangeCosts& costs);

}  // namespace fp8_sdpa::sm90
