// The two matrix products of a consumer warpgroup, as series of wgmma.
#pragma once

#include "sm90/shared.cuh"

namespace fp8_sdpa::sm90 {

/// Dims or keys of one wgmma.
inline constexpr int kDepth = 32;

/// Descriptors of what a warpgroup multiplies, computed once. They come through a shuffle: else the
/// compiler computes them again for each tile, from the address of shared memory on.
template <class T>
struct Operands {
  using Shared = sm90::Shared<T>;
  std::uint64_t queries, keys, values;  ///< of stage 0

  GPU_FN Operands(const Shared& sm, int row_group)
      : queries(from_shuffle(gpu::advance_descriptor(
            sm.queries[0].descriptor(), Shared::Queries::offset(row_group * kWarpgroupRows, 0)))),
        keys(from_shuffle(sm.keys[0].descriptor())),
        values(from_shuffle(values_descriptor(sm))) {}

  /// Descriptors of Q and K in their slots.
  struct ScoresAt {
    std::uint64_t q, k;
  };
  GPU_FN ScoresAt scores_at(int query_slot, int slot) const {
    return {advance_low(queries, query_slot * int{sizeof(typename Shared::Queries)}),
            advance_low(keys, slot * int{sizeof(typename Shared::Keys)})};
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

  /// Issues s (64, tile_n) += Q K^T of signed bytes, Q from shared memory.
  GPU_FN void add_scores(const ScoresAt& at, std::uint32_t (&s)[T::kScoreRegisters]) const {
#pragma unroll
    for (int dim = 0; dim < T::kHeadDim; dim += kDepth) {
      gpu::wgmma_m64k32_int8(s, gpu::advance_descriptor(at.q, Shared::Queries::offset(0, dim)),
                             gpu::advance_descriptor(at.k, Shared::Keys::offset(0, dim)), true);
    }
  }
  /// Issues O (64, head_dim) += P V, 16-bit elements, V as it lies.
  GPU_FN void add_outputs(const std::uint32_t (&weights)[T::kTileN / T::kPvDepth][4], int slot,
                          float (&o)[T::kOutputRegisters]) const {
    constexpr gpu::Float16 kType =
        T::kConfig.formats == Formats::kInt8Half ? gpu::Float16::kHalf : gpu::Float16::kBFloat16;
    const std::uint64_t v = advance_low(values, slot * int{sizeof(typename Shared::Values)});
#pragma unroll
    for (int key = 0; key < T::kTileN; key += T::kPvDepth) {
      gpu::wgmma_m64k16<kType>(o, weights[key / T::kPvDepth],
                               gpu::advance_descriptor(v, Shared::Values::offset(key, 0)), true);
    }
  }

  /// Issues O' (64, 2 kRegisters columns from `column` on) = P V.
  template <int kRegisters>
  GPU_FN void outputs(const std::uint32_t (&weights)[T::kTileN / kDepth][4], int slot, int column,
                      bool accumulate, float (&o)[kRegisters]) const {
    const std::uint64_t v = advance_low(
        values, slot * int{sizeof(typename Shared::Values)} + column * Shared::Values::kPanelBytes);
#pragma unroll
    for (int key = 0; key < T::kTileN; key += kDepth) {
      gpu::wgmma_m64k32<gpu::Fp8::kE4M3, gpu::Fp8::kE4M3>(
          o, weights[key / kDepth], gpu::advance_descriptor(v, Shared::Values::offset(0, key)),
          accumulate || key > 0);
    }
  }

 private:
  GPU_FN static std::uint64_t values_descriptor(const Shared& sm) {
    if constexpr (T::kInt8) {
      return sm.values[0].n_major_descriptor();
    } else {
      return sm.values[0].descriptor();
    }
  }
  /// What differs between lanes, if anything did, would be in the lower word.
  GPU_FN static std::uint64_t from_shuffle(std::uint64_t descriptor) {
    return descriptor >> 32 << 32 | gpu::shfl(static_cast<std::uint32_t>(descriptor), 0);
  }
  /// advance_descriptor() without a carry: shared memory ends below it.
  GPU_FN static std::uint64_t advance_low(std::uint64_t descriptor, int bytes) {
    return descriptor >> 32 << 32 |
           static_cast<std::uint32_t>(gpu::advance_descriptor(descriptor, bytes));
  }
};

}  // namespace fp8_sdpa::sm90
