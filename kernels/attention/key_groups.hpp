// Eight warps on one tile of 32 query rows: 2 row groups of 16 rows x 4 key groups of 32 keys a
// step.
//
// A warp holds S, P and O of its 16 rows in registers and keeps its own m and l over the keys of
// its group; the four groups' results are merged once, at the end (flash-decoding, inside a block).
// So in the loop nobody waits for anybody but the other warp of the same key group, with which a
// warp shares the copies of K and V.
//
//   warp            0    1    2    3    4    5    6    7
//   rows 0-15       x         x         x         x
//   rows 16-31           x         x         x         x
//   keys, step s    0-31      32-63     64-95     96-127      (+ 128 s)
//
// K and V stay FP8 in shared memory, as cp.async wrote them. ldmatrix moves 16-bit units, here
// pairs of codes; how operands are made of them is in half_operands.hpp and sm89/operands.cuh.
#pragma once

#include <cstdint>

#include "attention/forward_params.hpp"
#include "attention/query_codes.hpp"
#include "attention/shared_tile.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention::key_groups {

inline constexpr int kHeadDim = 64;
inline constexpr int kRowGroups = 2;
inline constexpr int kKeyGroups = 4;
inline constexpr int kWarpRows = 16;
inline constexpr int kWarpKeys = 32;
inline constexpr int kTileM = kRowGroups * kWarpRows;
inline constexpr int kTileN = kKeyGroups * kWarpKeys;  ///< keys per step of the block
inline constexpr int kThreads = kRowGroups * kKeyGroups * gpu::kWarpSize;
/// Two blocks to a multiprocessor cap the compiler at 128 registers a thread.
inline constexpr int kMinBlocks = 2;
/// Steps in flight or in use: 48 KB, what a launch gets without opting in to more.
inline constexpr int kStages = 3;
/// Accumulator tiles of 8 columns: of S, over keys; of O, over dims.
inline constexpr int kTilesS = kWarpKeys / 8;
inline constexpr int kTilesO = kHeadDim / 8;
inline constexpr int kChunksPerRow = kHeadDim / kChunk;

using CodeTile = SharedTile<std::uint8_t, kWarpKeys, kHeadDim, Layout::kSwizzled>;

/// One step's keys of one key group.
struct KvStage {
  CodeTile k;
  CodeTile v;
};

/// What the merge adds up. Rows of O are 16 floats apart in banks: a float4 from each lane of two
/// neighbouring rows meets no conflict.
struct Partials {
  SharedTile<float, kTileM, kHeadDim, Layout::kPadded, 16> o[kKeyGroups];
  RowState rows[kKeyGroups][kTileM];
};

/// tile     | shape                                   | type | when
/// ---------|-----------------------------------------|------|---------------
/// stages   | kStages x kKeyGroups x (K, V: 32 x 64)  | FP8  | in the loop
/// partials | kKeyGroups x 32 x 64, and (m, l)        | fp32 | after it
union Shared {
  KvStage stages[kStages][kKeyGroups];
  Partials partials;
};

/// What this warp works on.
struct WarpPlace {
  int row_group;
  int key_group;

  GPU_FN static WarpPlace of_this_warp() {
    return {gpu::warp_idx() % kRowGroups, gpu::warp_idx() / kRowGroups};
  }
  GPU_FN int first_key(int step) const { return step * kTileN + key_group * kWarpKeys; }
  /// Steps in which this key group has a key.
  GPU_FN int steps(int seq_kv) const {
    const int keys = seq_kv - first_key(0);
    return keys > 0 ? (keys + kTileN - 1) / kTileN : 0;
  }
};

using QueryCodes = attention::QueryCodes<kHeadDim>;

/// Of this warp's 16 rows.
GPU_FN QueryCodes load_queries(const ForwardParams& p, const Block& block, const WarpPlace& place,
                               const ScoreScale& scale) {
  constexpr int kCodesPerLane = 4;
  QueryCodes q;
  const int dim = gpu::lane_idx() % 4 * kCodesPerLane;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = block.first_row + place.row_group * kWarpRows + gpu::lane_idx() / 4 + 8 * h;
    const bool exists = row < p.seq_q;
    const std::uint8_t* codes =
        row_pointer(p.q, p.q_strides, block.batch, block.head, exists ? row : 0) + dim;
#pragma unroll
    for (int c = 0; c < kChunksPerRow; ++c) {
      const auto four = *reinterpret_cast<const std::uint32_t*>(codes + c * kChunk);
      q.codes[c][h] = exists ? four ^ scale.flip_signs : 0U;
    }
  }
  return q;
}

/// The ring of K/V stages of one key group. barrier | who | means:
/// 1 + key_group | its 2 warps, 64 threads | both copied their part of the step, and both have
/// finished the step before, whose stage may be overwritten.
class KvRing {
 public:
  GPU_FN KvRing(const ForwardParams& p, const Block& block, Shared& sm, const WarpPlace& place)
      : p_(p),
        sm_(sm),
        place_(place),
        steps_(place.steps(p.seq_kv)),
        block_steps_((p.seq_kv + kTileN - 1) / kTileN) {
    const int thread = place.row_group * gpu::kWarpSize + gpu::lane_idx();
    row_ = thread / kChunksPerRow;
    col_ = thread % kChunksPerRow * kChunk;
    const int key = place.first_key(0) + row_;
    k_ = row_pointer(p.k, p.k_strides, block.batch, block.head, key) + col_;
    v_ = row_pointer(p.v, p.v_strides, block.batch, block.head, key) + col_;
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) prefetch(step, step);
  }

  /// Steps of the block. All key groups wait for each of them, also one that has no key in the
  /// last: a checker of races that counts barriers, as compute-sanitizer's racecheck does, takes
  /// threads that have met fewer for earlier ones.
  GPU_FN int steps() const { return block_steps_; }
  GPU_FN bool has_keys(int step) const { return step < steps_; }

  /// Waits for a step's K and V, and starts the copy of a later one. Steps come in order.
  GPU_FN const KvStage& wait(int step) {
    gpu::cp_async_wait<kStages - 2>();
    gpu::named_barrier_sync(1 + place_.key_group, kCopiers);
    const int stage = stage_;
    const int freed = stage == 0 ? kStages - 1 : stage - 1;  // that of the step before
    prefetch(step + kStages - 1, freed);
    stage_ = stage == kStages - 1 ? 0 : stage + 1;
    return sm_.stages[stage][place_.key_group];
  }

 private:
  static constexpr int kCopiers = kRowGroups * gpu::kWarpSize;
  static constexpr int kRowsPerPass = kCopiers / kChunksPerRow;

  /// One cp.async group, empty past the last step. Rows past seq_kv become zero: nothing is read of
  /// them, so that their addresses may be past the end of K and V.
  GPU_FN void prefetch(int step, int stage) {
    if (step < steps_) {
      KvStage& to = sm_.stages[stage][place_.key_group];
      const int keys_left = p_.seq_kv - place_.first_key(step);
#pragma unroll
      for (int pass = 0; pass < kWarpKeys / kRowsPerPass; ++pass) {
        const int row = row_ + pass * kRowsPerPass;
        const bool there = row < keys_left;
        gpu::cp_async_16_zfill(to.k.at(row, col_), k_ + pass * kRowsPerPass * p_.k_strides.seq,
                               there);
        gpu::cp_async_16_zfill(to.v.at(row, col_), v_ + pass * kRowsPerPass * p_.v_strides.seq,
                               there);
      }
      k_ += kTileN * p_.k_strides.seq;
      v_ += kTileN * p_.v_strides.seq;
    }
    gpu::cp_async_commit();
  }

  const ForwardParams& p_;
  Shared& sm_;
  WarpPlace place_;
  int steps_;
  int block_steps_;        ///< of the key group that has most
  int row_, col_;          ///< of this thread's first chunk in a stage
  int stage_ = 0;          ///< of the step that is waited for next
  const std::uint8_t* k_;  ///< this thread's first chunk of the step that is copied next
  const std::uint8_t* v_;
};

}  // namespace fp8_sdpa::attention::key_groups
