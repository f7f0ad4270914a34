// The end of a kernel in key groups: four partial results per row become one, and go out.
//
//   m <- max_j m_j;  a_j <- exp2(m_j - m);  l <- sum_j a_j l_j
//   O <- (sum_j a_j O_j) * descale_v / l;   LSE <- (m + log2 l) ln 2
#pragma once

#include "attention/key_groups.hpp"
#include "attention/online_softmax.hpp"
#include "attention/output.hpp"
#include "attention/register_softmax.hpp"

namespace fp8_sdpa::attention::key_groups {

/// This warp's O and (m, l) to shared memory. O's tiles 2 b and 2 b + 1 hold the even and the odd
/// dims of 16 b .. 16 b + 15, so that a lane has four neighbours: dims 16 b + 4 t to + 3.
GPU_FN void write_partials(Partials& to, const WarpPlace& place, const float (&o)[kTilesO][4],
                           const LaneRows& rows, float factor) {
  const int t = gpu::lane_idx() % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = place.row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h;
#pragma unroll
    for (int b = 0; b < kTilesO / 2; ++b) {
      const float(&even)[4] = o[2 * b];
      const float(&odd)[4] = o[2 * b + 1];
      *reinterpret_cast<float4*>(to.o[place.key_group].at(row, 16 * b + 4 * t)) =
          make_float4(even[2 * h], odd[2 * h], even[2 * h + 1], odd[2 * h + 1]);
    }
    const float sum = sum_over_quad(rows.row[h].sum);
    if (t == 0) to.rows[place.key_group][row] = {rows.row[h].max * factor, sum};
  }
}

/// What each group's partial result of a row is multiplied with, and the row's own (m, l).
struct MergedRow {
  float scale[kKeyGroups];
  RowState state;
};

GPU_FN MergedRow merge_row(const Partials& from, int row) {
  MergedRow merged;
  RowState of_group[kKeyGroups];
#pragma unroll
  for (int j = 0; j < kKeyGroups; ++j) {
    of_group[j] = from.rows[j][row];
    merged.state.max = gpu::max_nan(merged.state.max, of_group[j].max);
  }
#pragma unroll
  for (int j = 0; j < kKeyGroups; ++j) {
    merged.scale[j] = rescale_factor(of_group[j].max, merged.state.max);
    merged.state.sum = gpu::fma(of_group[j].sum, merged.scale[j], merged.state.sum);
  }
  return merged;
}

/// Merges and writes the rows of O, and of LSE, that exist: by all threads, after all partials.
/// Sums of weights are 2^kLog2Scale too large.
template <int kLog2Scale>
GPU_FN void merge_and_store(const ForwardParams& p, const Block& block, const Partials& from) {
  constexpr int kVector = 4;
  constexpr int kLanesPerRow = kThreads / kTileM;
  const int r = gpu::thread_idx() / kLanesPerRow;
  const int row = block.first_row + r;
  if (row >= p.seq_q) return;
  const MergedRow merged = merge_row(from, r);
  const float scale = output_scale(merged.state, block.v_descale);
  // Half and bf16 have the same size, so one pointer type serves the address.
  auto* out =
      row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides, block.batch, block.head, row);
#pragma unroll
  for (int pass = 0; pass < kHeadDim / kVector / kLanesPerRow; ++pass) {
    const int dim = (pass * kLanesPerRow + gpu::thread_idx() % kLanesPerRow) * kVector;
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (int j = 0; j < kKeyGroups; ++j) {
      const float4 part = *reinterpret_cast<const float4*>(from.o[j].at(r, dim));
      sum.x = gpu::fma(part.x, merged.scale[j], sum.x);
      sum.y = gpu::fma(part.y, merged.scale[j], sum.y);
      sum.z = gpu::fma(part.z, merged.scale[j], sum.z);
      sum.w = gpu::fma(part.w, merged.scale[j], sum.w);
    }
    *reinterpret_cast<uint2*>(out + dim) =
        make_uint2(pack_output<false>(sum.x * scale, sum.y * scale, p.output),
                   pack_output<false>(sum.z * scale, sum.w * scale, p.output));
  }
  if (p.lse != nullptr && gpu::thread_idx() % kLanesPerRow == 0) {
    *lse_pointer(p, block, row) = log_sum_exp(merged.state) - static_cast<float>(kLog2Scale) * kLn2;
  }
}

}  // namespace fp8_sdpa::attention::key_groups
