// The two matrix products of a consumer warpgroup, as series of wgmma.
#pragma once

#include "sm90/shared.cuh"

namespace fp8_sdpa::sm90 {

/// Dims or keys of one wgmma.
inline constexpr int kDepth = 32;

/// Descriptors of what a warpgroup multiplies, computed once.
template <class T>
struct Operands {
  using Shared = sm90::Shared<T>;
  std::uint64_t queries, keys, values;  ///< of stage 0

  GPU_FN Operands(const Shared& sm, int row_group)
      : queries(gpu::advance_descriptor(sm.queries[0].descriptor(),
                                        Shared::Queries::offset(row_group * kWarpgroupRows, 0))),
        keys(sm.keys[0].descriptor()),
        values(sm.values[0].descriptor()) {}

  /// Descriptors of Q and K in their slots.
  struct ScoresAt {
    std::uint64_t q, k;
  };
  GPU_FN ScoresAt scores_at(int query_slot, int slot) const {
    return {gpu::advance_descriptor(queries, query_slot * int{sizeof(typename Shared::Queries)}),
            gpu::advance_descriptor(keys, slot * int{sizeof(typename Shared::Keys)})};
  }
  /// Issues S (64, tile_n) = Q K^T, Q from shared memory.
  GPU_FN void scores(const ScoresAt& at, float (&s)[T::kScoreRegisters]) const {
#pragma unroll
    for (int dim = 0; dim < T::kHeadDim; dim += kDepth) {
      gpu::wgmma_m64k32<gpu::Fp8::kE4M3, gpu::Fp8::kE4M3>(
          s, gpu::advance_descriptor(at.q, Shared::Queries::offset(0, dim)),
          gpu::advance_descriptor(at.k, Shared::Keys::offset(0, dim)), dim > 0);
    }
  }

  /// Issues O' (64, 2 kRegisters columns from `column` on) = P V.
  template <int kRegisters>
  GPU_FN void outputs(const std::uint32_t (&weights)[T::kTileN / kDepth][4], int slot, int column,
                      bool accumulate, float (&o)[kRegisters]) const {
    const std::uint64_t v = gpu::advance_descriptor(
        values, slot * int{sizeof(typename Shared::Values)} + column * Shared::Values::kPanelBytes);
#pragma unroll
    for (int key = 0; key < T::kTileN; key += kDepth) {
      gpu::wgmma_m64k32<gpu::Fp8::kE4M3, gpu::Fp8::kE4M3>(
          o, weights[key / kDepth], gpu::advance_descriptor(v, Shared::Values::offset(0, key)),
          accumulate || key > 0);
    }
  }
};

}  // namespace fp8_sdpa::sm90
