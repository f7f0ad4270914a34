// The rows of a consumer warpgroup in its work tile: their scales, and which keys they see.
#pragma once

#include "sm90/compute/rings.cuh"
#include "sm90/compute/softmax.cuh"

namespace fp8_sdpa::sm90 {

template <class T>
struct OwnRows : Rings<T> {
  using R = Rings<T>;
  using R::p, R::sm, R::row_group;
  using Scores = float[T::kScoreRegisters];
  /// In place of `unmasked`: scales are negative, so scores change their sign, and every tile takes
  /// the way of masked ones.
  static constexpr int kNegated = -1;

  int step = 0;      ///< of the block's work
  int unmasked = 0;  ///< tiles below this are seen whole by all rows; or kNegated
  Rows rows;

  GPU_FN OwnRows(const Params& params, Shared<T>& shared, int group, int warp_of_group)
      : R(params, shared, group, warp_of_group) {}

  /// What raw scores of the lane's rows are multiplied by, in units of log2(e).
  GPU_FN float scale_of(const Work& work) const {
    if constexpr (T::kBlockScales) {
      // Of the first block of keys: all have its sign.
      return row_scale(work) * p.descale_k[first_descale_kv(p, work)];
    } else {
      return score_scale<T>(p, work, first_row_of_lane(work));
    }
  }
  /// With Config::block_scales: the same but for K's descale. Its sign goes elsewhere, as in
  /// attention::score_factor().
  GPU_FN float row_scale(const Work& work) const {
    return p.descale_q[descale_q_of(p, work, work.first_row + row_group * kWarpgroupRows)] *
           p.softmax_scale_log2;
  }
  /// TileScales::key and ratio of the tile at `position`. Read by the lane that releases keys,
  /// which is what lets the loader write them anew: an order that racecheck can follow.
  GPU_FN float key_scale() const { return from_lane_0(&TileScales::key); }
  GPU_FN float value_ratio() const { return from_lane_0(&TileScales::ratio); }
  GPU_FN void set_scale(float scale) {
    if constexpr (!T::kBlockScales) rows.scale = attention::score_factor(scale);
    bool negative = scale < 0.0F;
    if constexpr (T::kRecallsScale) kept_scale() = negative ? -rows.scale : rows.scale;
    if constexpr (T::kPacks) negative = gpu::any_lane(negative);
    if (negative) unmasked = kNegated;
  }
  /// With Config::packs() a lane's scale is its own, and the loop over keys has no register for it;
  /// with Config::block_scales it is the tile's.
  GPU_FN void recall_scale() {
    if constexpr (T::kRecallsScale) rows.scale = fabsf(kept_scale());
    if constexpr (T::kBlockScales) {
      rows.scale = gpu::fma(kept_row_scale(), key_scale(), attention::kNotZero);
    }
  }
  /// The first of the lane's two rows; the other is 8 below.
  GPU_FN int first_row_of_lane(const Work& work) const {
    if constexpr (T::kPacks) return first_row_of_thread<T>(work.first_row);
    return work.first_row + row_group * kWarpgroupRows + gpu::warp_idx() % kWarpgroupWarps * 16 +
           lane_of_thread<T>() / 4;
  }
  /// The work tile as far as masks ask for it, which few tiles need: the loop has no register to
  /// spare for it.
  GPU_FN Work work_again() const {
    if constexpr (T::kRagged) return told_to_warp(sm).work;
    const Held& held = sm.held[pinned(gpu::warp_idx()) - kWarpgroupWarps];
    Work work{};
    work.batch = held.batch;
    work.head = held.head;
    work.kv_head = attention::quotient(held.head, p.group);
    work.first_row = held.first_row;
    work.first_tile = held.first_tile;
    return work;
  }
  /// Keys that the lane's rows see of tile `at_tile` and those after it, from its first column on.
  GPU_FN void find_keys_left(int at_tile, int (&left)[2]) const {
    const Work work = work_again();
    const LaneRows lane = lane_rows<T>(p, first_row_of_lane(work));
    const int first_key = (work.first_tile + at_tile) * T::kTileN + lane_of_thread<T>() % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) left[h] = key_limit<T>(p, work, lane.query[h]) - first_key;
  }
  /// Scores of rows whose scale is negative change their sign.
  GPU_FN void negate(Scores& s) const {
    if constexpr (T::kRecallsScale) {
      if (!(kept_scale() < 0.0F)) return;
    } else if constexpr (T::kPacks) {
      const Work work = work_again();
      if (!(score_scale<T>(p, work, first_row_of_lane(work)) < 0.0F)) return;
    }
#pragma unroll
    for (float& score : s) {
      if constexpr (T::kInt8) {
        score = 2.0F * kInt8ZeroValue - score;
      } else {
        score = -score;
      }
    }
  }
  GPU_FN void mask(Scores& s, int at_tile) const {
    if (unmasked == kNegated) negate(s);
    int left[2];
    find_keys_left(at_tile, left);
    mask_scores(s, left);
  }

  /// With Config::block_scales, row_scale() without its sign: in a register, or, where ptxas would
  /// spill, in shared memory.
  GPU_FN void keep_row_scale(float scale) {
    if constexpr (kKeepsRowScale) {
      own_row_scale = fabsf(scale);
    } else if (gpu::lane_idx() == 0) {
      sm.scales.row_scale[consumer_warp<T>()] = fabsf(scale);
    }
  }

 private:
  GPU_FN float from_lane_0(float TileScales::*which) const {
    const float& own = sm.scales.tiles[R::position % ScalesState<T>::kSlots].*which;
    // Other lanes read something else: ptxas spills where they read nothing.
    const float& read = gpu::lane_idx() == 0 ? own : sm.zero;
    return gpu::shfl(read, 0);
  }
  static constexpr bool kKeepsRowScale = T::kHeadDim != 128;
  float own_row_scale = 0.0F;
  GPU_FN float kept_row_scale() const {
    if constexpr (kKeepsRowScale) {
      return own_row_scale;
    } else {
      return sm.scales.row_scale[consumer_warp<T>()];
    }
  }
  /// With its sign.
  GPU_FN volatile float& kept_scale() const {
    return sm.lane_scales.of_lane[pinned(gpu::thread_idx()) - kWarpgroupThreads];
  }
};

}  // namespace fp8_sdpa::sm90
