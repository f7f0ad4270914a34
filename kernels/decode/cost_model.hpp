// How long a launch takes on an sm_90, and with that how the keys are cut: as is predicted to be
// fastest. Fitted to problems in pages drawn at random, each cut in some twelve ways, on an H200
// (JOURNAL.md, section 7): microseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/sequences.hpp"
#include "decode/config.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::decode {

constexpr std::int64_t up(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

/// A block that has its multiprocessor alone takes `block` and `key` for each of its keys; where
/// the multiprocessor has n blocks, it takes n * `share` a key for all of them, if that is more.
struct Costs {
  int head_dim, row_groups, tile_heads;
  double block, key, share;
};
inline constexpr Costs kCosts[] = {
    {64, 1, 1, 2.8, 0.0014, 0.0048},
    {64, 1, kPair, 2.3, 0.0046, 0.0077},
    {64, kMaxRowGroups, 1, 3.4, 0.0057, 0.0149},
    {128, 1, 1, 2.8, 0.0078, 0.0074},
    {128, kMaxRowGroups, 1, 4.7, 0.0148, 0.0209},
    {256, 1, 1, 5.3, 0.0263, 0.0160},
    {256, kMaxRowGroups, 1, 6.0, 0.0137, 0.0559},
};
/// Behind one another in a graph launches take 1.6 alone; sm90's costs, beside which these are
/// compared, are of launches one by one.
inline constexpr double kLaunch = 1.6 + 2.0;
inline constexpr double kMerge = 0.5;
inline constexpr double kMergeValue = 3.0e-4;  ///< of each split's O, on each warp
/// Of the longest block, where only the device knows the lengths: less and more are better for
/// equal and for drawn ones.
inline constexpr double kUneven = 0.2;

/// Query rows of a KV head, the most that a sequence has.
inline std::int64_t rows_of_head(const Problem& p) { return p.seq_q * (p.heads_q / p.heads_kv); }
/// Tiles of them: as many as blocks of one split are made for.
inline std::int64_t row_tiles(const Problem& p) { return up(rows_of_head(p), kMaxRows); }
/// Of `heads` KV heads, those that have rows, at most.
inline std::int64_t tiles_of_rows(const Problem& p, std::int64_t heads) {
  const std::int64_t group = p.heads_q / p.heads_kv;
  return heads * std::min(p.batch * row_tiles(p),
                          up(attention::most_queries(p) * group, kMaxRows) + p.batch);
}

/// With batch_invariant always as many: which warp has a key, and so the order of sums, follows
/// from it.
inline int row_groups_for(const Problem& p, const PlanOptions& options) {
  return options.batch_invariant ? kMaxRowGroups : row_groups(rows_of_head(p));
}

/// Whether two KV heads share a tile.
inline bool has_pairs(const Problem& p, const PlanOptions& options) {
  return p.head_dim == kPairDim && p.heads_kv % kPair == 0 && rows_of_head(p) <= kPairRows &&
         !options.batch_invariant;
}

inline const Costs& costs_of(int head_dim, int groups, int heads) {
  return *std::ranges::find_if(kCosts, [&](const Costs& costs) {
    return costs.head_dim == head_dim && costs.row_groups == groups && costs.tile_heads == heads;
  });
}

/// In splits of `keys`.
inline double us_in_splits(const Problem& p, int sm_count, std::int64_t keys) {
  const std::int64_t rows = rows_of_head(p);
  const int groups = row_groups(rows);
  const int heads = has_pairs(p, {}) ? kPair : 1;
  const Costs& costs = costs_of(p.head_dim, groups, heads);
  const auto turn = [&](std::int64_t blocks) {  // so many on one multiprocessor
    const double key = std::max(costs.key, static_cast<double>(blocks) * costs.share);
    return costs.block + static_cast<double>(std::min(keys, p.seq_kv)) * key;
  };
  const std::int64_t at_once = blocks_at_once(groups);
  const std::int64_t splits = up(p.seq_kv, keys);
  const std::int64_t blocks = tiles_of_rows(p, p.heads_kv / heads) * splits;
  const std::int64_t slots = sm_count * at_once;
  const std::int64_t left = blocks % slots;
  double us = kLaunch + static_cast<double>(blocks / slots) * turn(at_once);
  if (left > 0) us += turn(up(left, sm_count));
  // Of sequences of different lengths the blocks do not end together.
  if (p.ragged.seqused_kv != nullptr && p.batch > 1) us += kUneven * turn(at_once);
  if (splits > 1) {
    const bool has_upper_half = heads > 1 || rows > kWarpRows / 2;
    const int merged = has_upper_half ? groups * kWarpRows : kWarpRows / 2;
    const double values = static_cast<double>(merged * p.head_dim) / warps(groups);
    us += kMerge + kMergeValue * values * static_cast<double>(splits);
  }
  return us;
}

/// Keys of a split: as many as are predicted to be fastest; with no_workspace all, with
/// batch_invariant always as many.
inline int split_keys(const Problem& p, int sm_count, const PlanOptions& options) {
  constexpr std::int64_t kInvariant = 1024;
  const auto keys_of = [&](std::int64_t splits) {
    return up(up(std::max<std::int64_t>(p.seq_kv, 1), splits), kSplitMultiple) * kSplitMultiple;
  };
  std::int64_t best = keys_of(1);
  if (options.no_workspace) return static_cast<int>(best);
  if (options.batch_invariant) return kInvariant;
  double best_us = us_in_splits(p, sm_count, best);
  const std::int64_t most = std::min(up(p.seq_kv, kSplitMultiple), std::int64_t{kMaxSplits});
  for (std::int64_t splits = 2; splits <= most; splits += 1 + splits / 16) {
    const std::int64_t keys = keys_of(splits);
    const double us = us_in_splits(p, sm_count, keys);
    if (us >= best_us) continue;
    best = keys;
    best_us = us;
  }
  return static_cast<int>(best);
}

}  // namespace fp8_sdpa::decode
