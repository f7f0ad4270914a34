// The kernel's arguments, and what a block makes of them.
#pragma once

#include <cstdint>

#include "attention/divisor.hpp"
#include "attention/head_view.hpp"
#include "attention/sequences.hpp"
#include "fp8_sdpa/problem.hpp"
#include "gpu/hopper.hpp"
#include "sm90/work/schedule.hpp"

namespace fp8_sdpa::sm90 {

/// How a (batch, head) becomes TMA coordinates: a broadcast dimension (stride 0) has one entry.
struct MapSteps {
  int head, batch;  ///< 1, or 0 if broadcast
};

/// With Transpose::kOnceByBlocks, in the workspace: how far V has been transposed, in units. Words
/// that follow each other; what they count, and what they hold before, is told in
/// shared_transpose.cuh.
struct UnitCounts {
  std::uint64_t* claimed;     ///< of each (batch, KV head)
  std::uint64_t* transposed;  ///< of each tile of each
  std::uint64_t* all;         ///< transposed in all
  std::uint64_t* left;        ///< warps that count no more
  int words;                  ///< in all
};

/// A sequence of a ragged batch, in the order in which its work tiles are dealt: ragged.cuh.
struct RaggedSequence {
  int first_work_tile;  ///< work tiles of those before
  int batch;
  int row_tiles;  ///< of a head, or of those that share rows
  attention::Sequence sequence;
};

/// With Config::ragged.
struct RaggedParams {
  attention::Sequences sequences;
  const std::int32_t* block_table;  ///< or null
  int pages, max_pages;
  attention::Divisor page_size;
  int box_keys;  ///< of a box of K or V
  int batch;
  std::uint32_t* fault;   ///< or null
  RaggedSequence* order;  ///< in the workspace: batch of them, and where work tiles end
};

/// With Config::packs(): query heads that share the rows of a tile, as Packing says.
struct PackedHeads {
  int group;
  int log2;
  attention::Divisor strips;
  attention::Divisor heads;  ///< of a batch's, or of a sequence's, work tiles
};

struct Params {
  gpu::TensorMap q, k, v;
  void* o;
  float* lse;  ///< or null
  const float* descale_q;
  const float* descale_k;
  const float* descale_v;        ///< or null, of a V of 16 bits
  const float* o_scale;          ///< with an output of E4M3
  attention::Strides o_strides;  ///< in words of 16 bits
  MapSteps q_steps, k_steps, v_steps;
  attention::Divisor heads_q;
  attention::Divisor group;  ///< query heads of a KV head
  int heads_kv;
  int seq_q, seq_kv;
  attention::Divisor tiles_m;          ///< work tiles of a (batch, head)
  attention::Divisor pass_work_tiles;  ///< of one pass
  /// (batch, head) pairs of one pass, and of the last, which may have fewer.
  attention::Divisor pass_heads, last_pass_heads;
  int work_tiles;  ///< in all
  int passes;
  float softmax_scale_log2;
  bool causal;
  bool v_transposed;
  int v_pairs;  ///< 1: V comes in rows of two keys (keys_pair_up() in launch.cuh); else 0
  Dtype output;
  void* splits;            ///< of work tiles that several blocks share: merge_splits.cuh
  std::uint64_t plan_tag;  ///< of what is counted in the workspace: no_units()
  std::uint8_t* values;    ///< with V^T in the workspace: V^T, tile by tile
  UnitCounts units;
  std::uint64_t all_units;
  Schedule schedule;
  RaggedParams ragged;
  /// With Config::block_scales: descales of a head of Q, and of K and of V; one, of all its rows,
  /// or one a block.
  int q_descales, kv_descales;
  PackedHeads packed;
};

/// What a block does at one step: KV tiles [first_tile, end_tile) of a work tile.
struct TileRange {
  static constexpr int kNone = -1;
  static constexpr int kWhole = 0x7FFFFFFF;
  int work_tile;  ///< or kNone
  int first_tile;
  int end_tile;        ///< kWhole: the work tile's end
  int tail_work_tile;  ///< its place in the tail; kNone: in a round
  int split;           ///< KV splits of the work tile before this one
};

/// One work tile, as this block sees it.
struct Work {
  int batch, head, kv_head;  ///< head: the first of those that share rows
  int first_row;
  int tiles;       ///< KV tiles of this block, of those that any row of the work tile sees
  int last_tile;   ///< the last of them
  int first_tile;  ///< the first tile of the tile range
  attention::Sequence sequence;  ///< with Config::ragged
};

}  // namespace fp8_sdpa::sm90
