#include "sm90/work/schedule.hpp"

#include <algorithm>
#include <vector>

namespace fp8_sdpa::sm90 {
namespace {

/// Past this many rounds a tail saves 1.5 % at most: one round of 65.
constexpr int kMaxRounds = 64;
/// A tail that saves less is not worth its memory.
constexpr double kWorthwhile = 0.99;

/// Tiles and costs of the whole work tiles in `rounds` full rounds, by block.
std::vector<double> loads_of_rounds(int rounds, int work_tiles, int blocks,
                                    const WorkTileSizes& sizes, const RangeCosts& costs) {
  std::vector<double> loads(static_cast<std::size_t>(blocks), 0.0);
  for (int round = 0; round < rounds; ++round) {
    for (int block = 0; block < blocks; ++block) {
      const int work_tile = work_tile_of_round(round, block, blocks);
      if (work_tile >= work_tiles) continue;
      const WorkTileSize size = sizes(work_tile);
      loads[static_cast<std::size_t>(block)] += size.part * size.tiles + costs.range;
    }
  }
  return loads;
}

/// Loads of a lane of the kernel that merges, each after the one before: of four splits, or of
/// eight that it has of a share of all (merge_splits.cuh).
int loads_of_merge(const Schedule& schedule) {
  const int work_tiles = schedule.tail_work_tiles;
  const int splits = (schedule.splits() + work_tiles - 1) / work_tiles;
  constexpr int kOfFew = 4;
  constexpr int kOfMany = 4 * 8;
  return splits > kFewSplits ? 1 + (splits + kOfMany - 1) / kOfMany
                             : (splits + kOfFew - 1) / kOfFew;
}

/// Deals the tail to one block after the other, each up to a limit.
class Dealer {
 public:
  Dealer(const std::vector<WorkTileSize>& tail, const std::vector<double>& loads,
         const RangeCosts& costs)
      : tail_(tail), loads_(loads), costs_(costs) {}

  /// Whether all of the tail fits if no block takes longer than `limit` and no KV split has fewer
  /// than `least` tiles.
  bool deal(double limit, int least, Schedule& schedule) {
    place_ = {0, 0, 0};
    const int blocks = static_cast<int>(loads_.size());
    for (int block = 0; block < blocks; ++block) {
      schedule.tail[block] = place_;
      fill(limit - loads_[static_cast<std::size_t>(block)], least, schedule);
    }
    schedule.tail[blocks] = place_;
    return place_.work_tile == static_cast<int>(tail_.size());
  }

 private:
  void fill(double room, int least, Schedule& schedule) {
    while (place_.work_tile < static_cast<int>(tail_.size())) {
      const WorkTileSize& size = tail_[static_cast<std::size_t>(place_.work_tile)];
      const int left = size.tiles - place_.tile;
      const double rest = size.part * left + costs_.range + (place_.split > 0 ? costs_.split : 0.0);
      if (rest <= room) {
        room -= rest;
        finish_work_tile(schedule);
        continue;
      }
      const int fits =
          std::max(0, static_cast<int>((room - costs_.range - costs_.split) / size.part));
      const int taken = std::min(fits, left - least);
      if (taken >= least) {
        place_.tile += taken;
        ++place_.split;
      }
      return;
    }
  }
  void finish_work_tile(Schedule& schedule) {
    const int splits = place_.split > 0 ? place_.split + 1 : 0;
    const int before = schedule.first_split[place_.work_tile];
    ++place_.work_tile;
    schedule.first_split[place_.work_tile] = static_cast<std::int16_t>(before + splits);
    place_.split = 0;
    place_.tile = 0;
  }

  const std::vector<WorkTileSize>& tail_;
  const std::vector<double>& loads_;
  const RangeCosts& costs_;
  TailPlace place_{};
};

}  // namespace

std::vector<std::int64_t> pass_sizes(const Problem& p, int heads, Backend backend) {
  // Most of the L2 cache of an H100 or H200; on the host executor so little that small problems too
  // have several passes.
  const std::int64_t bytes = backend == Backend::kDevice ? 32 << 20 : 64 << 10;
  const std::int64_t kv_head = 2 * p.seq_kv * p.head_dim;
  const std::int64_t most = std::max<std::int64_t>(1, bytes / kv_head) * (heads / p.heads_kv);
  const std::int64_t pairs = std::int64_t{p.batch} * heads;
  const std::int64_t fewest = (pairs + most - 1) / most;
  if (fewest == 1) return {pairs};
  std::vector<std::int64_t> sizes;
  constexpr int kSteps = 4;  // up to twice as many passes
  for (int step = 0; step <= kSteps; ++step) {
    const std::int64_t passes = fewest + fewest * step / kSteps;
    const std::int64_t in_pass = (pairs + passes - 1) / passes;
    if (sizes.empty() || in_pass < sizes.back()) sizes.push_back(in_pass);
  }
  return sizes;
}

Passes shortest_passes(const std::vector<std::int64_t>& sizes,
                       const std::function<Makespan(std::int64_t heads)>& schedule_of) {
  Passes best;
  for (const std::int64_t heads : sizes) {
    Makespan made = schedule_of(heads);
    if (best.heads == 0 || made.tiles <= best.makespan.tiles) best = {heads, made};
  }
  return best;
}

Makespan make_whole_schedule(int work_tiles, int blocks, const WorkTileSizes& sizes,
                             const RangeCosts& costs) {
  Makespan made;
  made.schedule.rounds = (work_tiles + blocks - 1) / blocks;
  const std::vector<double> loads =
      loads_of_rounds(std::min(made.schedule.rounds, kMaxRounds), work_tiles, blocks, sizes, costs);
  made.tiles = *std::max_element(loads.begin(), loads.end());
  // Of more rounds, the first few speak for all.
  if (made.schedule.rounds > kMaxRounds)
    made.tiles *= static_cast<double>(made.schedule.rounds) / kMaxRounds;
  return made;
}

Makespan make_schedule(int work_tiles, int blocks, const WorkTileSizes& sizes,
                       const RangeCosts& costs) {
  Makespan best = make_whole_schedule(work_tiles, blocks, sizes, costs);
  const double whole = best.tiles;
  const int rounds = work_tiles / blocks;
  if (rounds * blocks == work_tiles || rounds > kMaxRounds || blocks > kMaxTailBlocks) return best;
  std::vector<WorkTileSize> tail;
  for (int work_tile = rounds * blocks; work_tile < work_tiles; ++work_tile) {
    tail.push_back(sizes(work_tile));
    tail.back().tiles = std::max(1, tail.back().tiles);
  }
  const std::vector<double> loads = loads_of_rounds(rounds, work_tiles, blocks, sizes, costs);
  Dealer dealer(tail, loads, costs);
  double to_beat = whole * kWorthwhile;
  // Short KV splits even out better; each costs.
  for (int least = 1; least <= tail.front().tiles; least *= 2) {
    Schedule schedule;
    schedule.rounds = rounds;
    schedule.tail_work_tiles = static_cast<int>(tail.size());
    double low = *std::max_element(loads.begin(), loads.end());
    double high = whole;
    constexpr double kResolution = 0.125;
    while (high - low > kResolution) {
      const double limit = (low + high) / 2;
      (dealer.deal(limit, least, schedule) ? high : low) = limit;
    }
    if (!dealer.deal(high, least, schedule)) continue;
    // All multiprocessors merge.
    const int splits = schedule.splits();
    const double merge = splits == 0 ? 0.0
                                     : costs.merge + costs.split * splits / blocks +
                                           costs.load * loads_of_merge(schedule);
    if (high + merge >= to_beat) continue;
    to_beat = high + merge;
    best = {to_beat, schedule};
  }
  return best;
}

}  // namespace fp8_sdpa::sm90
