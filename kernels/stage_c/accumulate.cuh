// Stage C's U <- a U + P V. The rescale comes before the tile's products are added.
#pragma once

#include "stage_c/shared.cuh"

namespace fp8_sdpa::stage_c {

/// The part of U that a thread zeroes, accumulates and stores: one column, half of the rows.
struct OwnColumn {
  static constexpr int kRows = kTileM * kHeadDim / kThreads;
  int col;
  int first_row;

  GPU_FN static OwnColumn of_this_thread() {
    return {gpu::thread_idx() % kHeadDim, gpu::thread_idx() / kHeadDim * kRows};
  }
};

template <class Tag>
GPU_FN void clear_output(Shared<Tag>& sm) {
  const OwnColumn own = OwnColumn::of_this_thread();
  for (int r = own.first_row; r < own.first_row + OwnColumn::kRows; ++r) {
    *sm.u.at(r, own.col) = 0.0F;
  }
}

/// Scalar P V: fp32 FMAs, one column of U per thread.
template <class Tag>
GPU_FN void accumulate(Shared<Tag>& sm, int buffer) {
  const OwnColumn own = OwnColumn::of_this_thread();
  float acc[OwnColumn::kRows];
#pragma unroll
  for (int r = 0; r < OwnColumn::kRows; ++r) {
    acc[r] = *sm.u.at(own.first_row + r, own.col) * sm.rescale[own.first_row + r];
  }
  for (int n = 0; n < kTileN; ++n) {
    const float value = gpu::half_to_float(*sm.v[buffer].at(n, own.col));
#pragma unroll
    for (int r = 0; r < OwnColumn::kRows; ++r) {
      acc[r] = gpu::fma(*sm.s.at(own.first_row + r, n), value, acc[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < OwnColumn::kRows; ++r) {
    *sm.u.at(own.first_row + r, own.col) = acc[r];
  }
}

}  // namespace fp8_sdpa::stage_c
