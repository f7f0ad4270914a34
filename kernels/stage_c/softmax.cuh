// Stage C's online softmax on a tile of scores.
#pragma once

#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// Lanes that share a row of S, neighbours in a warp; each takes neighbouring columns.
inline constexpr int kLanesPerRow = kThreads / kTileM;
inline constexpr int kColumnsPerLane = kTileN / kLanesPerRow;

/// This lane's scores of the tile in units of log2(e), -inf past seq_kv.
template <class Tag>
GPU_FN void read_scores(const Params& p, const Block& block, const Shared<Tag>& sm, int tile,
                        int row, int first_col, float (&x)[kColumnsPerLane]) {
  constexpr int kVector = 4;
#pragma unroll
  for (int i = 0; i < kColumnsPerLane; i += kVector) {
    const float4 s = *reinterpret_cast<const float4*>(sm.s.at(row, first_col + i));
    x[i] = s.x;
    x[i + 1] = s.y;
    x[i + 2] = s.z;
    x[i + 3] = s.w;
  }
  const int attended = p.seq_kv - tile * kTileN - first_col;  // of the columns from first_col on
#pragma unroll
  for (int i = 0; i < kColumnsPerLane; ++i) {
    x[i] = i < attended ? x[i] * block.score_scale : -INFINITY;
  }
}

/// This lane's weights to where P V reads them: fp32 in place of S, or half in P's own tile.
template <class Tag>
GPU_FN void write_weights(Shared<Tag>& sm, int row, int first_col,
                          const float (&x)[kColumnsPerLane]) {
  if constexpr (Tag::kToggles.wmma_pv) {
    constexpr int kVector = 8;
#pragma unroll
    for (int i = 0; i < kColumnsPerLane; i += kVector) {
      alignas(16) __half2 pairs[kVector / 2];
#pragma unroll
      for (int pair = 0; pair < kVector / 2; ++pair) {
        pairs[pair] = gpu::float2_to_half2(x[i + 2 * pair], x[i + 2 * pair + 1]);
      }
      *reinterpret_cast<uint4*>(sm.p.at(row, first_col + i)) =
          *reinterpret_cast<const uint4*>(pairs);
    }
  } else {
    constexpr int kVector = 4;
#pragma unroll
    for (int i = 0; i < kColumnsPerLane; i += kVector) {
      *reinterpret_cast<float4*>(sm.s.at(row, first_col + i)) =
          make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
  }
}

/// One step: S becomes P (fp32 in place, or half in its own tile for tensor-core P V), a and (m, l)
/// go to shared memory. `state` is the row's (m, l), equal in the lanes that share it.
template <class Tag>
GPU_FN void softmax(const Params& p, const Block& block, Shared<Tag>& sm, int tile,
                    attention::RowState& state) {
  const int row = gpu::thread_idx() / kLanesPerRow;
  const int first_col = gpu::thread_idx() % kLanesPerRow * kColumnsPerLane;
  float x[kColumnsPerLane];
  read_scores(p, block, sm, tile, row, first_col, x);

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
    x[i] = gpu::exp2_approx(x[i] - attention::finite_max(new_max));
    sum += x[i];
  }
  write_weights(sm, row, first_col, x);
#pragma unroll
  for (int mask = 1; mask < kLanesPerRow; mask *= 2) {
    sum += gpu::shfl_xor(sum, mask);
  }
  state = {new_max, state.sum * rescale + sum};
  if (first_col == 0) {
    sm.rescale[row] = rescale;
    sm.rows[row] = state;
  }
}

}  // namespace fp8_sdpa::stage_c
