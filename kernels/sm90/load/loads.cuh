// Tiles by TMA.
#pragma once

#include "sm90/shared.cuh"
#include "sm90/work/work.cuh"

namespace fp8_sdpa::sm90 {

/// Coordinates of a (batch, head) in a tensor map.
struct MapPlace {
  int head, batch;
};
GPU_FN MapPlace place(const MapSteps& steps, int head, int batch) {
  return {steps.head * head, steps.batch * batch};
}

/// A tile of `rows` rows from `first_row` on, panel by panel.
template <class TileType>
GPU_FN void load_rows(TileType& tile, const gpu::TensorMap& map, gpu::MBarrier& full, int first_row,
                      const MapPlace& at) {
#pragma unroll
  for (int i = 0; i < TileType::kPanels; ++i) {
    gpu::tma_load_4d(tile.bytes[i], map, full, i * TileType::kPanelBytes, first_row, at.head,
                     at.batch);
  }
}
/// A tile of queries, the rows of all heads that share it, of a sequence from query `first_query`
/// on: by one box where a strip has all these heads, else strip by strip.
template <class Queries>
GPU_FN void load_packed(Queries& tile, const Params& p, gpu::MBarrier& full, const Work& work,
                        int first_query) {
  const int boxes = p.packed.strips.value == 1 ? 1 : Queries::kHeight / kStripRows;
  for (int box = 0; box < boxes; ++box) {
    const StripPlace at = place_of_strip(p, work.first_row / kStripRows + box);
#pragma unroll
    for (int i = 0; i < Queries::kPanels; ++i) {
      gpu::tma_load_4d(tile.bytes[i] + box * kStripRows * Queries::kPanelBytes, p.q, full,
                       i * Queries::kPanelBytes, p.q_steps.head * (work.head + at.head),
                       first_query + at.query, p.q_steps.batch * work.batch);
    }
  }
}
/// A tile of a V that comes transposed, panel by panel, from dim `first_dim` on.
template <class Values>
GPU_FN void load_transposed_values(Values& to, const gpu::TensorMap& map, gpu::MBarrier& full,
                                   int first_key, int first_dim, const MapPlace& at) {
#pragma unroll
  for (int i = 0; i < Values::kPanels; ++i) {
    gpu::tma_load_4d(to.bytes[i], map, full, first_key + i * Values::kPanelBytes, first_dim,
                     at.head, at.batch);
  }
}

}  // namespace fp8_sdpa::sm90
