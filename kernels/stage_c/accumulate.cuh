// Stage C's U <- a U + P V, four ways. The rescale comes before the tile's products are added.
//
// way         | variants               | part of U that a thread or warp owns
// ------------|------------------------|-------------------------------------------------
// scalar      | neither PV toggle      | thread: 16 rows x 1 column
// vectorised  | VEC_PV                 | thread: 8 rows x 2 columns
// WMMA        | WMMA_PV                | warp: 16 rows x 32 columns
// mma.sync    | WMMA_PV, XOR_SWIZZLE   | warp: 16 rows x 32 columns
#pragma once

#include "attention/mma_fragment.hpp"
#include "stage_c/scores.cuh"
#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// U <- 0, by kThreadsOf threads of which this is number `thread`.
template <int kThreadsOf, class Tag>
GPU_FN void clear_output(Shared<Tag>& sm, int thread) {
  constexpr int kVector = 4;
  constexpr int kVectorsPerRow = kHeadDim / kVector;
#pragma unroll
  for (int pass = 0; pass < kTileM * kVectorsPerRow / kThreadsOf; ++pass) {
    const int i = thread + pass * kThreadsOf;
    *reinterpret_cast<float4*>(sm.u.at(i / kVectorsPerRow, i % kVectorsPerRow * kVector)) =
        make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
}

/// U <- a U + P V with fp32 FMAs: one column of U, half of the rows.
template <class Tag>
GPU_FN void accumulate_scalar(Shared<Tag>& sm, int buffer) {
  constexpr int kRows = kTileM * kHeadDim / kThreads;
  const int col = gpu::thread_idx() % kHeadDim;
  const int first_row = gpu::thread_idx() / kHeadDim * kRows;
  float acc[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    acc[r] = *sm.u.at(first_row + r, col) * sm.rescale[first_row + r];
  }
#pragma unroll 2
  for (int n = 0; n < kTileN; ++n) {
    const float value = gpu::half_to_float(*sm.v[buffer].at(n, col));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      acc[r] = gpu::fma(*sm.s.at(first_row + r, n), value, acc[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    *sm.u.at(first_row + r, col) = acc[r];
  }
}

/// The same sums in the same order, with vector accesses: V as half2, P four keys at a time, U as
/// float2.
template <class Tag>
GPU_FN void accumulate_vectorised(Shared<Tag>& sm, int buffer) {
  constexpr int kColumns = 2;
  constexpr int kKeys = 4;
  constexpr int kRows = kTileM * kHeadDim / kThreads / kColumns;
  const int col = gpu::thread_idx() % (kHeadDim / kColumns) * kColumns;
  const int first_row = gpu::thread_idx() / (kHeadDim / kColumns) * kRows;
  float2 acc[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float2 u = *reinterpret_cast<const float2*>(sm.u.at(first_row + r, col));
    const float rescale = sm.rescale[first_row + r];
    acc[r] = make_float2(u.x * rescale, u.y * rescale);
  }
  for (int n = 0; n < kTileN; n += kKeys) {
    float2 value[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      value[i] =
          gpu::half2_to_float2(*reinterpret_cast<const __half2*>(sm.v[buffer].at(n + i, col)));
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 p = *reinterpret_cast<const float4*>(sm.s.at(first_row + r, n));
      const float weights[kKeys] = {p.x, p.y, p.z, p.w};
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        acc[r].x = gpu::fma(weights[i], value[i].x, acc[r].x);
        acc[r].y = gpu::fma(weights[i], value[i].y, acc[r].y);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    *reinterpret_cast<float2*>(sm.u.at(first_row + r, col)) = acc[r];
  }
}

/// Where a warp's part of U is, for the tensor-core ways.
struct WarpPart {
  static constexpr int kRows = 16;
  static constexpr int kCols = kTileM * kHeadDim / kWarps / kRows;
  int row;
  int col;

  GPU_FN static WarpPart of_this_warp() {
    constexpr int kAcross = kHeadDim / kCols;
    return {gpu::warp_idx() / kAcross * kRows, gpu::warp_idx() % kAcross * kCols};
  }
};

/// The warp's part of U <- a U, 16 bytes at a time.
template <class Tag>
GPU_FN void rescale_part(Shared<Tag>& sm, const WarpPart& part) {
  constexpr int kVector = 4;
  constexpr int kVectorsPerRow = WarpPart::kCols / kVector;
#pragma unroll
  for (int pass = 0; pass < WarpPart::kRows * kVectorsPerRow / gpu::kWarpSize; ++pass) {
    const int i = gpu::lane_idx() + pass * gpu::kWarpSize;
    const int row = part.row + i / kVectorsPerRow;
    auto* u = reinterpret_cast<float4*>(sm.u.at(row, part.col + i % kVectorsPerRow * kVector));
    const float a = sm.rescale[row];
    *u = make_float4(u->x * a, u->y * a, u->z * a, u->w * a);
  }
}

/// Tensor cores through nvcuda::wmma. A fragment's layout is opaque, so the rescale happens in
/// shared memory, between two loads.
template <class Tag>
GPU_FN void accumulate_wmma(Shared<Tag>& sm, int buffer) {
  namespace wmma = gpu::wmma;
  constexpr int kFragments = WarpPart::kCols / kFragment;
  const WarpPart part = WarpPart::of_this_warp();
  rescale_part(sm, part);
  gpu::sync_warp();  // the rescaled U is read by other lanes
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[kFragments];
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    wmma::load_matrix_sync(acc[f], sm.u.at(part.row, part.col + f * kFragment), sm.u.kPitch,
                           wmma::mem_row_major);
  }
#pragma unroll
  for (int n = 0; n < kTileN; n += kFragment) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::load_matrix_sync(a, sm.p.at(part.row, n), sm.p.kPitch);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
      wmma::load_matrix_sync(b, sm.v[buffer].at(n, part.col + f * kFragment), sm.v[buffer].kPitch);
      wmma::mma_sync(acc[f], a, b, acc[f]);
    }
  }
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    wmma::store_matrix_sync(sm.u.at(part.row, part.col + f * kFragment), acc[f], sm.u.kPitch,
                            wmma::mem_row_major);
  }
}

/// Tensor cores through mma.sync, whose accumulator layout is known: the rescale happens in
/// registers, and ldmatrix reads the swizzled P and V.
template <class Tag>
GPU_FN void accumulate_mma(Shared<Tag>& sm, int buffer) {
  constexpr int kPairs = WarpPart::kCols / kFragment;
  const WarpPart part = WarpPart::of_this_warp();
  const auto place = attention::AccumulatorPlace::of_this_lane();
  float acc[kPairs][2][4];
#pragma unroll
  for (int i = 0; i < kPairs * 4; ++i) {  // (pair of 8-column tiles, tile, upper or lower rows)
    const int row = part.row + place.row(i % 2);
    const int col = part.col + i / 2 * 8 + place.col;
    const float2 u = *reinterpret_cast<const float2*>(sm.u.at(row, col));
    acc[i / 4][i / 2 % 2][i % 2 * 2] = u.x * sm.rescale[row];
    acc[i / 4][i / 2 % 2][i % 2 * 2 + 1] = u.y * sm.rescale[row];
  }
#pragma unroll
  for (int n = 0; n < kTileN; n += kFragment) {
    const auto a = attention::load_a(sm.p, part.row, n);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      attention::multiply_add(
          acc[pair], a,
          attention::load_b_from_columns(sm.v[buffer], n, part.col + pair * kFragment));
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs * 4; ++i) {
    const int row = part.row + place.row(i % 2);
    const int col = part.col + i / 2 * 8 + place.col;
    *reinterpret_cast<float2*>(sm.u.at(row, col)) =
        make_float2(acc[i / 4][i / 2 % 2][i % 2 * 2], acc[i / 4][i / 2 % 2][i % 2 * 2 + 1]);
  }
}

/// U <- a U + P V, the way of the variant.
template <class Tag>
GPU_FN void accumulate(Shared<Tag>& sm, int buffer) {
  constexpr Toggles kToggles = Tag::kToggles;
  if constexpr (kToggles.wmma_pv && kToggles.xor_swizzle) {
    accumulate_mma(sm, buffer);
  } else if constexpr (kToggles.wmma_pv) {
    accumulate_wmma(sm, buffer);
  } else if constexpr (kToggles.vec_pv) {
    accumulate_vectorised(sm, buffer);
  } else {
    accumulate_scalar(sm, buffer);
  }
}

}  // namespace fp8_sdpa::stage_c
