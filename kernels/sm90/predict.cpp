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
#include "sm90/costs.hpp"
#include "sm90/sm90.hpp"
#include "sm90/work/packing.hpp"
#include "sm90/work/schedule.hpp"

namespace fp8_sdpa::sm90 {
namespace {

/// At which K and V come from an H200's memory: the smaller a tile's box, the less is under way.
/// Boxes of 64 keys of head_dim 64 come no faster from the L2 cache either, once for each work
/// tile.
constexpr double bytes_per_us(int head_dim) {
  return head_dim == 64 ? 3.3e6 : head_dim == 128 ? 3.9e6 : 3.8e6;
}
constexpr double kSmallBoxBytesPerUs = 2.7e6;
constexpr std::int64_t kSmallBox = 4096;
/// That a work tile of a ragged batch takes beside its KV tiles.
constexpr double kWorkTileUs = 2.0;
/// By how much longer than predicted the kernels for ragged batches take on whole tensors: seen on
/// an H200, where sm90_packed_gqa was then faster.
constexpr double kOrderUs = 2.0;
/// Of a KV tile's time, where one consumer warpgroup alone has rows and few boxes bring the tile:
/// measured in pages of 64 and 128 keys, where pages of 16 take all of it. Of whole tensors too,
/// for which there are faster kernels.
constexpr double kOneRowGroup = 0.6;
constexpr int kLargePage = 64;
/// By how much longer the tiles take where heads share them, under the causal mask; and where all
/// of a KV head's rows are one warpgroup's, from head_dim 128 on: seen on an H200.
constexpr double kCausalOfShared = 1.04;
constexpr double kFewRowsOfShared = 1.2;

/// The work tile that is dealt `work tile`-th, longest first; the warpgroups that share its rows
/// have equally many KV tiles.
WorkTileSize size_of_work_tile(const Config& config, const Problem& p, const Packing& packing,
                               std::int64_t work_tile) {
  const std::int64_t group_keys = std::int64_t{config.tile_n} * config.kv_splits;
  const std::int64_t queries = mean_queries(p);
  const std::int64_t row_tiles = packing.row_tiles(queries);
  const std::int64_t heads = std::int64_t{p.batch} * packing.heads;
  // As place_of_work_tile() of work.cuh, in one pass.
  const std::int64_t tile =
      p.mask == Mask::kCausal ? row_tiles - 1 - work_tile / heads : work_tile % row_tiles;
  std::int64_t keys = p.seq_kv;
  if (p.mask == Mask::kCausal) {
    const std::int64_t end = std::min(queries, packing.queries_of(tile + 1));
    keys = std::clamp<std::int64_t>(end + p.seq_kv - queries, 0, p.seq_kv);
  }
  const std::int64_t tiles = (keys + group_keys - 1) / group_keys * config.kv_splits;
  const double part =
      config.ragged ? 1.0 : part_of_tile(config, packing.rows(queries) - tile * packing.tile_m);
  return {static_cast<int>(tiles), part};
}

/// Of a ragged batch's KV tile, as a part of what one takes that all consumers have rows of.
double part_of_ragged_tile(const Packing& packing, const Problem& p) {
  const bool large = p.pages.block_table == nullptr || p.pages.page_size >= kLargePage;
  const bool few = packing.rows(mean_queries(p)) <= kWarpgroupRows;
  return large && few && attention::is_ragged_or_paged(p) ? kOneRowGroup : 1.0;
}

/// That K and V are under way for.
double transfer_us(const Config& config, const Packing& packing, const Problem& p) {
  const double kv_bytes = static_cast<double>(size_of(p.k.dtype) + size_of(p.v.dtype)) *
                          static_cast<double>(p.seq_kv) * p.head_dim;
  const double heads = static_cast<double>(p.batch) * p.heads_kv;
  const double from_memory = heads * kv_bytes / bytes_per_us(p.head_dim);
  if (config.tile_n * p.head_dim > kSmallBox) return from_memory;
  const double work_tiles = static_cast<double>(p.batch) * packing.heads *
                            static_cast<double>(packing.row_tiles(p.seq_q));
  const double above_mask =
      p.mask == Mask::kCausal ? static_cast<double>(p.seq_q) / (2.0 * static_cast<double>(p.seq_kv))
                              : 0.0;
  return std::max(from_memory, work_tiles * (1.0 - above_mask) * kv_bytes / kSmallBoxBytesPerUs);
}

}  // namespace

Load load_of(const TileShape& shape, const Problem& p, int sm_count, const PlanOptions& options) {
  const Config& config = shape.config;
  const Packing packing = packing_of(config, p);
  // More, which batch_invariant may predict for, are as good as these.
  const std::int64_t work_tiles =
      std::min(kMaxWorkTiles, packing.row_tiles(mean_queries(p)) * p.batch * packing.heads);
  const auto size = [&](int work_tile) { return size_of_work_tile(config, p, packing, work_tile); };
  const RangeCosts costs = range_costs(config, p.head_dim);
  const bool may_split = may_share_rows(options) && !config.two_terms && !config.ragged;
  const Makespan makespan =
      may_split ? make_schedule(static_cast<int>(work_tiles), sm_count, size, costs)
                : make_whole_schedule(static_cast<int>(work_tiles), sm_count, size, costs);
  const double v = config.v_in_workspace()
                       ? static_cast<double>(p.seq_kv) * p.batch * p.heads_kv * p.head_dim
                       : 0.0;
  const bool longer = config.packed_gqa && packing.group > 1 && p.mask == Mask::kCausal;
  return {makespan.tiles * (longer ? kCausalOfShared : 1.0), v};
}

double predicted_us(const TileShape& shape, const Cost& cost, const Problem& p, int sm_count,
                    const PlanOptions& options) {
  const Load load = load_of(shape, p, sm_count, options);
  const Packing packing = packing_of(shape.config, p);
  const std::int64_t rounds =
      shape.config.ragged ? packing.row_tiles(mean_queries(p)) * p.batch * packing.heads / sm_count
                          : 0;
  const double tile_us =
      cost.tile_us * (shape.config.ragged ? part_of_ragged_tile(packing, p) : 1.0);
  const bool few_rows = shape.config.packed_gqa && packing.group > 1 && p.head_dim > 64 &&
                        packing.rows(p.seq_q) <= kWarpgroupRows;
  const double order_us = shape.config.ragged && !attention::is_ragged_or_paged(p) ? kOrderUs : 0.0;
  const double tiles_us = (few_rows ? kFewRowsOfShared : 1.0) * tile_us * load.tiles;
  return cost.launch_us + order_us + kWorkTileUs * static_cast<double>(rounds) +
         std::max(tiles_us, transfer_us(shape.config, packing, p)) + cost.v_us * 1e-6 * load.v;
}
double predicted_us(const TileShape& shape, const Problem& p, int sm_count,
                    const PlanOptions& options) {
  return predicted_us(shape, cost_of(shape), p, sm_count, options);
}

}  // namespace fp8_sdpa::sm90
