// Stage C's Q K^T: one 16 x 16 fragment of S per warp, on tensor cores, fp32 accumulation.
#pragma once

#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

inline constexpr int kFragment = 16;
inline constexpr int kFragmentsN = kTileN / kFragment;
static_assert(kTileM / kFragment * kFragmentsN == kWarps);

/// S = Q K^T of the KV tile in `buffer`, through nvcuda::wmma.
template <class Tag>
GPU_FN void scores(Shared<Tag>& sm, int buffer) {
  namespace wmma = gpu::wmma;
  const int row = gpu::warp_idx() / kFragmentsN * kFragment;
  const int col = gpu::warp_idx() % kFragmentsN * kFragment;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0F);
#pragma unroll
  for (int d = 0; d < kHeadDim; d += kFragment) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
    wmma::load_matrix_sync(a, sm.q.at(row, d), sm.q.kPitch);
    wmma::load_matrix_sync(b, sm.k[buffer].at(col, d), sm.k[buffer].kPitch);
    wmma::mma_sync(acc, a, b, acc);
  }
  wmma::store_matrix_sync(sm.s.at(row, col), acc, sm.s.kPitch, wmma::mem_row_major);
}

}  // namespace fp8_sdpa::stage_c
