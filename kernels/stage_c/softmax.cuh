// Stage C's online softmax on a tile of scores.
#pragma once

#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// Lanes that share a row of S, neighbours in a warp.
inline constexpr int kLanesPerRow = kThreads / kTileM;
inline constexpr int kColumnsPerLane = kTileN / kLanesPerRow;

/// This lane's scores of the tile in units of log2(e), -inf past seq_kv; column lane + i *
/// kLanesPerRow.
template <class Tag>
GPU_FN void read_scores(const Params& p, const Block& block, const Shared<Tag>& sm, int tile,
                        int row, int lane, float (&x)[kColumnsPerLane]) {
#pragma unroll
  for (int i = 0; i < kColumnsPerLane; ++i) {
    const int col = lane + i * kLanesPerRow;
    const bool attended = tile * kTileN + col < p.seq_kv;
    x[i] = attended ? *sm.s.at(row, col) * block.score_scale : -INFINITY;
  }
}

/// One step: S becomes P (fp32 in place, or half in its own tile for tensor-core P V), a and (m, l)
/// go to shared memory. `state` is the row's (m, l), equal in the lanes that share it.
template <class Tag>
GPU_FN void softmax(const Params& p, const Block& block, Shared<Tag>& sm, int tile,
                    attention::RowState& state) {
  const int row = gpu::thread_idx() / kLanesPerRow;
  const int lane = gpu::thread_idx() % kLanesPerRow;
  float x[kColumnsPerLane];
  read_scores(p, block, sm, tile, row, lane, x);

  float tile_max = x[0];
#pragma unroll
  for (int i = 1; i < kColumnsPerLane; ++i) {
    tile_max = gpu::max_nan(tile_max, x[i]);
  }
#pragma unroll
  for (int mask = 1; mask < kLanesPerRow; mask *= 2) {
    tile_max = gpu::max_nan(tile_max, gpu::shfl_xor(tile_max, mask));
  }
  const float new_max = gpu::max_nan(state.max, tile_max);
  const float rescale = attention::rescale_factor(state.max, new_max);

  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kColumnsPerLane; ++i) {
    const float weight = gpu::exp2_approx(x[i] - attention::finite_max(new_max));
    const int col = lane + i * kLanesPerRow;
    if constexpr (Tag::kToggles.wmma_pv) {
      *sm.p.at(row, col) = gpu::float_to_half(weight);
    } else {
      *sm.s.at(row, col) = weight;
    }
    sum += weight;
  }
#pragma unroll
  for (int mask = 1; mask < kLanesPerRow; mask *= 2) {
    sum += gpu::shfl_xor(sum, mask);
  }
  state = {new_max, state.sum * rescale + sum};
  if (lane == 0) {
    sm.rescale[row] = rescale;
    sm.rows[row] = state;
  }
}

}  // namespace fp8_sdpa::stage_c
