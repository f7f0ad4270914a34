// The arguments that the kernels of the ladder share, and a block's place among them.
#pragma once

#include <cstdint>

#include "attention/head_view.hpp"
#include "fp8_sdpa/problem.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// Arguments of a kernel that gives each block a tile of query rows of one (batch, head). Tensors
/// are FP8 codes; see Problem for shapes. heads_q == heads_kv.
struct ForwardParams {
  const std::uint8_t* q;
  const std::uint8_t* k;
  const std::uint8_t* v;
  void* o;
  float* lse;  ///< or null
  const float* descale_q;
  const float* descale_k;
  const float* descale_v;
  Strides q_strides, k_strides, v_strides, o_strides;
  int heads;
  int seq_q, seq_kv;
  int tiles_m;               ///< query tiles per (batch, head)
  float softmax_scale_log2;  ///< softmax_scale * log2(e)
  Dtype input, output;
};

/// The arguments of a problem that is served in tiles of `tile_m` query rows.
ForwardParams forward_params(const Problem& problem, int tile_m);

/// How many blocks that makes.
unsigned forward_blocks(const Problem& problem, int tile_m);

/// The block's place in the problem, and the scales that go with it.
struct Block {
  int batch, head, first_row;
  float score_scale;  ///< raw score -> units of log2(e)
  float v_descale;
};

template <int kTileM>
GPU_FN Block locate(const ForwardParams& p) {
  const int bh = static_cast<int>(gpu::block_idx().x) / p.tiles_m;
  const int tile = static_cast<int>(gpu::block_idx().x) % p.tiles_m;
  return {bh / p.heads, bh % p.heads, tile * kTileM,
          p.descale_q[bh] * p.descale_k[bh] * p.softmax_scale_log2, p.descale_v[bh]};
}

/// Where the log-sum-exp of a query row goes.
GPU_FN float* lse_pointer(const ForwardParams& p, const Block& block, int row) {
  const std::int64_t bh = static_cast<std::int64_t>(block.batch) * p.heads + block.head;
  return p.lse + bh * p.seq_q + row;
}

}  // namespace fp8_sdpa::attention
