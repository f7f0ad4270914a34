// A consumer warpgroup: 64 query rows of a work tile against its share of the KV tiles, last tile
// first, so that masked tiles come at the start.
// Data flow of a tile, all in registers but Q, K and V^T:
//   S = Q K^T (wgmma, A and B in shared memory) -> mask -> weights, m, l -> P (E4M3)
//   O' = P V (wgmma, A in registers) -> O = O rescale + O'
// With Config::int8() S begins as kInt8Zero, P is of 16 bits, and P V adds to O rescale itself.
// The pipelines differ in what runs beside the softmax; i counts this warpgroup's tiles:
//   kSerial   QK(i) . softmax(i) . PV(i) .
//   kOverlap  QK(i) PV(i-1) . softmax(i) under PV(i-1) .   with Config::int8()
#pragma once

#include "sm90/compute/tile_steps.cuh"
#include "sm90/compute/two_terms.cuh"

namespace fp8_sdpa::sm90 {

template <class T>
struct Consumer : TileSteps<T> {
  using R = TileSteps<T>;
  using R::describe_ahead, R::issue_scores, R::take_scores, R::find_scores;
  using R::kConfig, R::kWaitAhead, R::kLinearExp2, R::operands;
  using R::offset_of_row, R::weigh, R::weigh_ping_pong, R::take_weights, R::finish_outputs;
  using R::p, R::row_group, R::position, R::tile, R::next, R::rows, R::unmasked, R::set_scale;
  using R::wait_keys, R::release_keys, R::wait_values, R::release_values;
  using R::wait_ping_pong, R::signal_ping_pong;
  using typename R::Scores, typename R::RawScores, typename R::Weights, typename R::Outputs;

  GPU_FN Consumer(const Params& params, Shared<T>& shared, int group, int warp_of_group)
      : TileSteps<T>(params, shared, group, warp_of_group) {}

  /// O, m and l of this warpgroup's rows over its tiles; `tiles_before` are those of earlier work
  /// tiles. Returns the tiles up to the next one.
  GPU_FN unsigned run(const Work& work, float scale, unsigned tiles_before, Outputs& o) {
    begin(work, scale, tiles_before);
#pragma unroll
    for (int i = 0; i < T::kOutputRegisters; ++i) o[i] = 0.0F;
    if (tile >= 0) {
      if constexpr (kConfig.two_terms) {
        one_tile(o);
      } else if constexpr (kConfig.pipeline == Pipeline::kSerial) {
        serial(o);
      } else {
        overlap(o);
      }
    }
    if constexpr (T::kBlockScales) {
      rows.scale = 1.0F;  // as m is
    } else {
      R::recall_scale();
    }
    if constexpr (T::kInt8) scale_int8_max(rows);
    // One that shares its keys with nobody has come past all of them.
    if constexpr (T::kKvSplits == 1) return position;
    return tiles_before + static_cast<unsigned>(work.tiles);
  }

 private:
  /// The place of this warpgroup in the work tile; tiles that none of its rows sees are passed
  /// over.
  GPU_FN void begin(const Work& work, float scale, unsigned tiles_before) {
    const int first_row = work.first_row + row_group * kWarpgroupRows;
    const int first_key = work.first_tile * T::kTileN;
    const int last = first_row + kWarpgroupRows - 1;
    const int rows_end = end_of_rows<T>(p, work);
    const int end =
        first_row < rows_end
            ? key_limit<T>(p, work, query_of<T>(p, last < rows_end ? last : rows_end - 1)) -
                  first_key
            : 0;
    const int common = key_limit<T>(p, work, query_of<T>(p, first_row)) - first_key;
    unmasked = common < 0 ? 0 : common / T::kTileN;
    rows = T::kBlockScales ? rows_of_scaled_max() : Rows{};
    set_scale(scale);
    position = tiles_before + R::kv_split;
    tile = work.last_tile - work.first_tile - R::kv_split;
    for (; tile * T::kTileN >= end && tile >= 0; next()) {
      if constexpr (kConfig.ping_pong) wait_ping_pong();
      wait_keys(position);
      wait_values(position);
      gpu::sync_warp();  // lane 0 speaks for lanes that have seen these phases
      release_keys(position);
      release_values(position);
      if constexpr (kConfig.ping_pong) signal_ping_pong(0);
    }
  }

  /// Few keys: one tile and no other, P in two terms, the smaller one first.
  GPU_FN void one_tile(Outputs& o) {
    Scores s;
    Weights weights[2];
    float rescale[2];
    wait_keys(position);
    issue_scores(s);
    gpu::wgmma_wait<0>();
    release_keys(position);
    R::template begin_softmax<Masks::kMaybe>(s, tile, rescale);
    exponentiate_in_two_terms(s, rows, weights[0], weights[1]);
    wait_values(position);
    const int slot = slot_of<T::kStages>(position);
    gpu::pin_registers(o);
    gpu::wgmma_fence();
    operands.outputs(weights[1], slot, 0, false, o);
    operands.outputs(weights[0], slot, 0, true, o);
    gpu::wgmma_commit();
    gpu::wgmma_wait<0>();
    gpu::pin_registers(o);
    release_values(position);
    next();
  }

  GPU_FN void serial(Outputs& o) {
    if constexpr (kWaitAhead) wait_keys(position);
    describe_ahead(position);
    if constexpr (kConfig.masks_apart) {
      for (; tile >= 0 && tile >= unmasked; next()) serial_tile<Masks::kSome>(o);
      for (; tile >= 0; next()) serial_tile<Masks::kNone>(o);
    } else {
      for (; tile >= 0; next()) serial_tile<Masks::kMaybe>(o);
    }
  }
  template <Masks kMasks>
  GPU_FN void serial_tile(Outputs& o) {
    Scores s;
    Weights weights;
    float rescale[2];
    if constexpr (!kWaitAhead) wait_keys(position);
    find_scores(s);
    R::template begin_softmax<kMasks>(s, tile, rescale);
    if constexpr (kConfig.ping_pong) {
      weigh_ping_pong(s, weights);
    } else {
      const float offset[2] = {offset_of_row(0), offset_of_row(1)};
      if constexpr (T::kInt8) {
        exponentiate<0, T::kScoreRegisters>(s, rows.scale, offset);
        take_weights(s, weights);
      } else if constexpr (kConfig.mma_row_sums) {
        exponentiate<0, T::kScoreRegisters, kLinearExp2>(s, rows.scale, offset);
        pack<0, T::kScoreRegisters, kLinearExp2>(s, rows.scale, offset, weights);
      } else {
        exponentiate_and_pack(s, offset, rows, weights);
      }
    }
    wait_values(position);
    finish_outputs(weights, position, rescale, o);
    release_values(position);
  }

  GPU_FN void overlap(Outputs& o) {
    Weights weights;
    float rescale[2];  // of the tile whose weights these are
    {
      Scores s;
      wait_keys(position);
      find_scores(s);
      R::template begin_softmax<Masks::kMaybe>(s, tile, rescale);
      weigh(s);
      wait_values(position);
      take_weights(s, weights);
      next();
    }
    // Here and below: the values of the tile before have been waited for.
    if (tile >= 0) wait_keys(position);
    for (; tile >= 0; next()) overlap_tile(weights, rescale, o);
    finish_outputs(weights, position - T::kKvSplits, rescale, o);
    release_values(position - T::kKvSplits);
  }
  /// Softmax of a tile under P V of the one before, whose weights become this one's.
  GPU_FN void overlap_tile(Weights& weights, float (&rescale)[2], Outputs& o) {
    static_assert(T::kInt8);
    RawScores raw;
    Scores s;
    float new_rescale[2];
    const unsigned before = position - T::kKvSplits;
    issue_scores(raw);
    R::issue_outputs(weights, before, rescale, o);
    gpu::wgmma_wait<1>();
    release_keys(position);
    take_scores(raw, s);
    R::template begin_softmax<Masks::kMaybe>(s, tile, new_rescale);
    weigh(s);
    wait_values(position);
    if (tile >= T::kKvSplits) wait_keys(position + T::kKvSplits);
    gpu::wgmma_wait<0>();
    gpu::pin_registers(o);
    release_values(before);
    take_weights(s, weights);
    rescale[0] = new_rescale[0];
    rescale[1] = new_rescale[1];
  }
};

}  // namespace fp8_sdpa::sm90
