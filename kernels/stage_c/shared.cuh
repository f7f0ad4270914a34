// Stage C's shared memory.
#pragma once

#include "attention/forward_params.hpp"
#include "attention/online_softmax.hpp"
#include "attention/shared_tile.hpp"
#include "gpu/gpu.hpp"
#include "stage_c/config.hpp"

namespace fp8_sdpa::stage_c {

using attention::Block;
using Params = attention::ForwardParams;

/// Nothing: what a variant has in place of a buffer that it does not use.
struct Absent {};

/// Between the producer warp and the consumers, one per buffer of K and V. Their users and phases:
/// kernel.cuh.
template <int kBuffers>
struct Ring {
  gpu::MBarrier full[kBuffers];
  gpu::MBarrier empty[kBuffers];
};

/// FP8 tiles as cp.async writes them.
struct Staging {
  alignas(16) std::uint8_t k[kStages][kTileN][kHeadDim];
  alignas(16) std::uint8_t v[kStages][kTileN][kHeadDim];
};

/// tile      | shape                 | type                  | present
/// ----------|-----------------------|-----------------------|----------------------------
/// q         | kTileM x kHeadDim     | half                  | always
/// k, v      | kTileN x kHeadDim     | half, kBuffers of each| always
/// s         | kTileM x kTileN       | fp32: S, then P       | always (P unless WMMA_PV)
/// p         | kTileM x kTileN       | half                  | WMMA_PV
/// u         | kTileM x kHeadDim     | fp32                  | always
/// staging   | kTileN x kHeadDim x 4 | FP8                   | CP_ASYNC
/// table     | 256                   | half                  | KV_LUT
/// ring      | 2 x kBuffers          | mbarrier              | WARP_SPEC
template <class Tag>
struct Shared {
  static constexpr Toggles kToggles = Tag::kToggles;
  static constexpr attention::Layout kLayout =
      kToggles.xor_swizzle ? attention::Layout::kSwizzled : attention::Layout::kPadded;
  /// A producer warp converts tile t + 1 while the consumers compute on tile t.
  static constexpr int kBuffers = kToggles.warp_spec ? 2 : 1;
  /// U's rows are two chunks of padding apart: rows g and g + 1 of an accumulator, 8 bytes a lane,
  /// share no bank.
  static constexpr int kPadU = 8;

  using KvTile = attention::SharedTile<__half, kTileN, kHeadDim, kLayout>;
  using PTile = attention::SharedTile<__half, kTileM, kTileN, kLayout>;

  attention::SharedTile<__half, kTileM, kHeadDim, kLayout> q;
  KvTile k[kBuffers];
  KvTile v[kBuffers];
  attention::SharedTile<float, kTileM, kTileN, kLayout> s;
  std::conditional_t<kToggles.wmma_pv, PTile, Absent> p;
  attention::SharedTile<float, kTileM, kHeadDim, attention::Layout::kPadded, kPadU> u;
  float rescale[kTileM];  ///< a
  attention::RowState rows[kTileM];
  std::conditional_t<kToggles.cp_async, Staging, Absent> staging;
  std::conditional_t<kToggles.kv_lut, __half[256], Absent> table;
  std::conditional_t<kToggles.warp_spec, Ring<kBuffers>, Absent> ring;
};

}  // namespace fp8_sdpa::stage_c
