// Stage C's Q K^T: one 16 x 16 fragment of S per warp, on tensor cores, fp32 accumulation.
#pragma once

#include "attention/mma_fragment.hpp"
#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

inline constexpr int kFragment = 16;

/// The fragment of S that a warp computes.
struct ScoresPart {
  int row;
  int col;

  GPU_FN static ScoresPart of_this_warp() {
    constexpr int kAcross = kTileN / kFragment;
    static_assert(kTileM / kFragment * kAcross == kWarps);
    return {gpu::warp_idx() / kAcross * kFragment, gpu::warp_idx() % kAcross * kFragment};
  }
};

/// Through nvcuda::wmma, from padded tiles.
template <class Tag>
GPU_FN void scores_wmma(Shared<Tag>& sm, int buffer) {
  namespace wmma = gpu::wmma;
  const ScoresPart part = ScoresPart::of_this_warp();
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0F);
#pragma unroll
  for (int d = 0; d < kHeadDim; d += kFragment) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
    wmma::load_matrix_sync(a, sm.q.at(part.row, d), sm.q.kPitch);
    wmma::load_matrix_sync(b, sm.k[buffer].at(part.col, d), sm.k[buffer].kPitch);
    wmma::mma_sync(acc, a, b, acc);
  }
  wmma::store_matrix_sync(sm.s.at(part.row, part.col), acc, sm.s.kPitch, wmma::mem_row_major);
}

/// Through ldmatrix and mma.sync, from swizzled tiles, which load_matrix_sync cannot express.
template <class Tag>
GPU_FN void scores_mma(Shared<Tag>& sm, int buffer) {
  const ScoresPart part = ScoresPart::of_this_warp();
  float acc[2][4] = {};
#pragma unroll
  for (int d = 0; d < kHeadDim; d += kFragment) {
    attention::multiply_add(acc, attention::load_a(sm.q, part.row, d),
                            attention::load_b_from_rows(sm.k[buffer], part.col, d));
  }
  const auto place = attention::AccumulatorPlace::of_this_lane();
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // (8-column tile, upper or lower rows)
    *reinterpret_cast<float2*>(
        sm.s.at(part.row + place.row(i % 2), part.col + i / 2 * 8 + place.col)) =
        make_float2(acc[i / 2][i % 2 * 2], acc[i / 2][i % 2 * 2 + 1]);
  }
}

/// S = Q K^T of the KV tile in `buffer`.
template <class Tag>
GPU_FN void scores(Shared<Tag>& sm, int buffer) {
  if constexpr (Tag::kToggles.xor_swizzle) {
    scores_mma(sm, buffer);
  } else {
    scores_wmma(sm, buffer);
  }
}

}  // namespace fp8_sdpa::stage_c
