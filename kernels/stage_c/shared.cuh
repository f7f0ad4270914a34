// Stage C's arguments and shared memory.
#pragma once

#include "attention/head_view.hpp"
#include "attention/online_softmax.hpp"
#include "attention/shared_tile.hpp"
#include "gpu/gpu.hpp"
#include "stage_c/config.hpp"

namespace fp8_sdpa::stage_c {

/// Arguments of every Stage C kernel. Tensors are FP8 codes; see Problem for shapes.
struct Params {
  const std::uint8_t* q;
  const std::uint8_t* k;
  const std::uint8_t* v;
  void* o;
  float* lse;  ///< or null
  const float* descale_q;
  const float* descale_k;
  const float* descale_v;
  attention::Strides q_strides, k_strides, v_strides, o_strides;
  int heads;
  int seq_q, seq_kv;
  int tiles_m;               ///< query tiles per (batch, head)
  float softmax_scale_log2;  ///< softmax_scale * log2(e)
  Dtype input, output;
};

/// The block's place in the problem, and the scales that go with it.
struct Block {
  int batch, head, first_row;
  float score_scale;  ///< raw score -> units of log2(e)
  float v_descale;
};

GPU_FN Block locate(const Params& p) {
  const int bh = static_cast<int>(gpu::block_idx().x) / p.tiles_m;
  const int tile = static_cast<int>(gpu::block_idx().x) % p.tiles_m;
  return {bh / p.heads, bh % p.heads, tile * kTileM,
          p.descale_q[bh] * p.descale_k[bh] * p.softmax_scale_log2, p.descale_v[bh]};
}

/// Nothing: what a variant has in place of a buffer that it does not use.
struct Absent {};

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
};

}  // namespace fp8_sdpa::stage_c
