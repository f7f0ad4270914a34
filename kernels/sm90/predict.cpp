// What a launch takes, predicted: the ground of the library's choice.
//
//   launch_us + tile_us * tiles + v_us * 10^-6 V's elements
//
// or, for the tiles, as long as K and V are under way from memory.
//
// Sequences whose lengths the device alone knows count as long as the mean, with seq_kv keys each.
//
// tiles are the KV tiles of the block that ends last, as schedule.hpp deals them to persistent
// blocks; what it does beside them is counted in KV tiles too. Where V is transposed before it is
// multiplied, all of it is. The kernel's numbers are fitted to launches on an H200: costs.def.
#include <algorithm>
#include <cstdint>

#include "sm90/config.hpp"
#include "sm90/sm90.hpp"
#include "sm90/work/packing.hpp"
#include "sm90/work/schedule.hpp"

namespace fp8_sdpa::sm90 {
namespace {

/// At which K and V come from an H200's memory.
constexpr double kBytesPerUs = 4.0e6;
/// That a work tile of a ragged batch takes beside its KV tiles.
constexpr double kWorkTileUs = 2.0;
/// Of a KV tile's time, where one consumer warpgroup alone has rows and few boxes bring the tile:
/// measured in pages of 64 and 128 keys, where pages of 16 take all of it.
constexpr double kOneRowGroup = 0.6;
constexpr int kLargePage = 64;
/// Of a KV tile's time, what a consumer warpgroup's share that has no rows does not take.
constexpr double kNoRows = 0.6;

/// KV tiles of the work tile that is dealt `work tile`-th, longest first; the warpgroups that share
/// its rows have equally many.
std::int64_t tiles_of_work_tile(const Config& config, const Problem& p, const Packing& packing,
                                std::int64_t work_tile) {
  const std::int64_t group_keys = std::int64_t{config.tile_n} * config.kv_splits;
  std::int64_t keys = p.seq_kv;
  if (p.mask == Mask::kCausal) {
    const std::int64_t queries = mean_queries(p);
    const std::int64_t tile =
        packing.row_tiles(queries) - 1 - work_tile / (std::int64_t{p.batch} * packing.heads);
    const std::int64_t end = std::min(queries, (tile + 1) * (packing.tile_m >> packing.log2));
    keys = std::clamp<std::int64_t>(end + p.seq_kv - queries, 0, p.seq_kv);
  }
  return (keys + group_keys - 1) / group_keys * config.kv_splits;
}

/// What KV tiles take where heads share tiles and not all consumer warpgroups have rows, as a part
/// of what they take where all do. The costs of other kernels were fitted without.
double part_with_rows(const Packing& packing, std::int64_t queries) {
  if (packing.log2 == 0) return 1.0;
  const std::int64_t rows = queries << packing.log2;
  const double groups = static_cast<double>((rows + kWarpgroupRows - 1) / kWarpgroupRows);
  const double most = static_cast<double>(packing.row_tiles(queries)) *
                      static_cast<double>(packing.tile_m / kWarpgroupRows);
  return 1.0 - kNoRows * (1.0 - groups / most);
}

/// Of a ragged batch's KV tile, as a part of what one takes that all consumers have rows of.
double part_of_tile(const Packing& packing, const Problem& p) {
  const bool large = p.pages.block_table == nullptr || p.pages.page_size >= kLargePage;
  const std::int64_t rows = mean_queries(p) << packing.log2;
  return large && rows <= kWarpgroupRows ? kOneRowGroup : 1.0;
}

}  // namespace

Load load_of(const TileShape& shape, const Problem& p, int sm_count, const PlanOptions& options) {
  const Config& config = shape.config;
  const Packing packing = packing_of(config, p);
  // More, which batch_invariant may predict for, are as good as these.
  const std::int64_t work_tiles =
      std::min(kMaxWorkTiles, packing.row_tiles(mean_queries(p)) * p.batch * packing.heads);
  const auto tiles = [&](int work_tile) {
    return static_cast<int>(tiles_of_work_tile(config, p, packing, work_tile));
  };
  const double part = config.packed_gqa ? part_with_rows(packing, p.seq_q) : 1.0;
  RangeCosts costs = range_costs(config, p.head_dim);
  for (double* cost : {&costs.range, &costs.split, &costs.merge}) *cost /= part;  // not of these
  const bool may_split = may_share_rows(options) && !config.two_terms && !config.ragged;
  const Makespan makespan =
      may_split ? make_schedule(static_cast<int>(work_tiles), sm_count, tiles, costs)
                : make_whole_schedule(static_cast<int>(work_tiles), sm_count, tiles, costs);
  const double v = config.v_in_workspace()
                       ? static_cast<double>(p.seq_kv) * p.batch * p.heads_kv * p.head_dim
                       : 0.0;
  return {part * makespan.tiles, v};
}

double predicted_us(const TileShape& shape, const Problem& p, int sm_count,
                    const PlanOptions& options) {
  const Load load = load_of(shape, p, sm_count, options);
  const double kv_bytes = static_cast<double>(size_of(p.k.dtype) + size_of(p.v.dtype)) * p.batch *
                          p.heads_kv * static_cast<double>(p.seq_kv) * p.head_dim;
  const Packing packing = packing_of(shape.config, p);
  const std::int64_t rounds =
      shape.config.ragged ? packing.row_tiles(mean_queries(p)) * p.batch * packing.heads / sm_count
                          : 0;
  const double tile_us =
      shape.cost.tile_us * (shape.config.ragged ? part_of_tile(packing, p) : 1.0);
  return shape.cost.launch_us + kWorkTileUs * static_cast<double>(rounds) +
         std::max(tile_us * load.tiles, kv_bytes / kBytesPerUs) + shape.cost.v_us * 1e-6 * load.v;
}

}  // namespace fp8_sdpa::sm90
