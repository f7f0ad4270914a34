// The producer warpgroup: one thread issues TMA, three warps bring V into the order of P V.
//
// wgmma takes FP8 operands with k contiguous: P V wants V^T, rows of keys. A row-major V lands in a
// buffer of its own and is transposed by ldmatrix.trans, byte permutes and stmatrix. A V that comes
// transposed lands in its place. Either way the keys of each 32 are permuted, so that the
// accumulators of Q K^T are the operands of P V without any exchange between lanes: with
// t = lane % 4, a lane holds of a row of S
//   keys 8 j + 2t, + 1 (j = 0..3), while the operand's k are 16 a + 4t + 2b, + 1 (a, b = 0, 1);
// so position 16 a + 4t + 2b + c of V^T holds key 16 a + 8 b + 2t + c.
#pragma once

#include "sm90/shared.cuh"
#include "sm90/work.cuh"

namespace fp8_sdpa::sm90 {

/// Coordinates of a (batch, head) in a tensor map.
struct MapPlace {
  int head, batch;
};
GPU_FN MapPlace place(const MapSteps& steps, int head, int batch) {
  return {steps.head * head, steps.batch * batch};
}

/// A tile of `rows` rows from `first_row` on, panel by panel.
template <class TileType>
GPU_FN void load_rows(TileType& tile, const gpu::TensorMap& map, gpu::MBarrier& full, int first_row,
                      const MapPlace& at) {
#pragma unroll
  for (int i = 0; i < TileType::kPanels; ++i) {
    gpu::tma_load_4d(tile.bytes[i], map, full, i * TileType::kPanelBytes, first_row, at.head,
                     at.batch);
  }
}

/// The thread that issues all loads, in the order in which consumers want them.
template <class T>
struct Loader {
  static constexpr int kLandings = Shared<T>::kLandings;
  const Params& p;
  Shared<T>& sm;
  unsigned tiles_before = 0;  ///< of earlier items
  unsigned items_before = 0;  ///< with keys
  unsigned item_start = 0;    ///< tiles before the last of those

  GPU_FN void run() {
    for_each_piece<T>(p, [this](int, const Piece& piece) { load(locate<T>(p, piece)); });
  }

 private:
  GPU_FN void load(const Work& work) {
    if (work.tiles == 0) return;
    load_queries(work);
    const MapPlace k_at = place(p.k_steps, work.kv_head, work.batch);
    const MapPlace v_at = place(p.v_steps, work.kv_head, work.batch);
    for (int tile = work.last_tile; tile >= work.first_tile;
         tile -= T::kClusterBlocks, ++tiles_before) {
      const int slot = slot_of<T::kStages>(tiles_before);
      gpu::mbarrier_wait(sm.key_empty[slot], empty_parity<T::kStages>(tiles_before));
      gpu::mbarrier_arrive_expect_tx(sm.key_full[slot], sizeof(sm.keys[0]));
      load_rows(sm.keys[slot], p.k, sm.key_full[slot], tile * T::kTileN, k_at);
      if (p.v_transposed) {
        load_transposed(tile, v_at);
        continue;
      }
      const int landing = slot_of<kLandings>(tiles_before);
      gpu::mbarrier_wait(sm.landing_empty[landing], empty_parity<kLandings>(tiles_before));
      gpu::mbarrier_arrive_expect_tx(sm.landing_full[landing], sizeof(sm.landing[0]));
      load_rows(sm.landing[landing], p.v, sm.landing_full[landing], tile * T::kTileN, v_at);
    }
  }

  GPU_FN void load_queries(const Work& work) {
    wait_for_queries(T::kQueryStages == 1 ? tiles_before : item_start);
    item_start = tiles_before;
    const int slot = slot_of<T::kQueryStages>(items_before++);
    gpu::mbarrier_arrive_expect_tx(sm.query_full[slot], sizeof(sm.queries[0]));
    load_rows(sm.queries[slot], p.q, sm.query_full[slot], work.first_row,
              place(p.q_steps, work.head, work.batch));
  }
  /// Nobody reads Q of the item whose tiles end at `end` any more: its last tiles' keys have been
  /// released, which each warpgroup does after its last scores.
  GPU_FN void wait_for_queries(unsigned end) {
#pragma unroll
    for (unsigned i = 1; i <= T::kKeyGroups; ++i) {
      const unsigned last = end - i;
      // None, or waited for already, to fill its slot anew.
      if (i > end || tiles_before - last > T::kStages) continue;
      gpu::mbarrier_wait(sm.key_empty[slot_of<T::kStages>(last)], full_parity<T::kStages>(last));
    }
  }
  GPU_FN void load_transposed(int tile, const MapPlace& at) {
    using Values = typename Shared<T>::Values;
    const int slot = slot_of<T::kStages>(tiles_before);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(tiles_before));
    gpu::MBarrier& full = sm.landing_full[slot];
    gpu::mbarrier_arrive_expect_tx(full, T::kHeadDim * T::kTileN);
#pragma unroll
    for (int i = 0; i < Values::kPanels; ++i) {
      gpu::tma_load_4d(sm.values[slot].bytes[i], p.v, full,
                       tile * T::kTileN + i * Values::kPanelBytes, 0, at.head, at.batch);
    }
  }
};

/// A warp that brings V into its place; `warp` counts the transposers.
template <class T>
struct Transposer {
  using Keys = typename Shared<T>::Keys;
  using Values = typename Shared<T>::Values;
  static constexpr int kLandings = Shared<T>::kLandings;
  const Params& p;
  Shared<T>& sm;
  int warp;
  unsigned position = 0;

  GPU_FN void run() {
    for_each_piece<T>(p, [this](int, const Piece& piece) {
      const unsigned end = position + static_cast<unsigned>(locate<T>(p, piece).tiles);
      for (; position != end; ++position) {
        if (p.v_transposed) {
          rearrange_in_place();
        } else {
          transpose_tile();
        }
      }
    });
  }

 private:
  GPU_FN void transpose_tile() {
    const int slot = slot_of<T::kStages>(position);
    const int landing = slot_of<kLandings>(position);
    gpu::mbarrier_wait(sm.value_empty[slot], empty_parity<T::kStages>(position));
    gpu::mbarrier_wait(sm.landing_full[landing], full_parity<kLandings>(position));
    transpose(sm.landing[landing], sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) {
      gpu::mbarrier_arrive(sm.value_full[slot]);
      gpu::mbarrier_arrive(sm.landing_empty[landing]);
    }
  }
  GPU_FN void rearrange_in_place() {
    const int slot = slot_of<T::kStages>(position);
    gpu::mbarrier_wait(sm.landing_full[slot], full_parity<T::kStages>(position));
    interleave(sm.values[slot]);
    gpu::fence_proxy_async();
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(sm.value_full[slot]);
  }

  /// 16 dims of all keys at a time, in blocks of 32 keys: what depends on the lane is computed
  /// once, and the loads of a few blocks are under way together. Of a block, a lane gets, of keys 8
  /// i + 2t and + 1, dims 2g and 2g + 1, and owes rows 2g and 2g + 1 of V^T four positions each,
  /// for a = 0 and 1.
  GPU_FN void transpose(Keys& from, Values& to) const {
    constexpr unsigned kFromRow = Keys::kPanelBytes;
    constexpr unsigned kToRow = Values::kPanelBytes;
    // With three consumer warpgroups or more, a producer has no registers for two.
    constexpr unsigned kTogether = T::kTileN % 64 == 0 && T::kConsumers < 3 ? 2 : 1;
    // Plus 0, loaded: else what follows from the lane is kept from tile to tile, and spilled.
    const float zero = *static_cast<const volatile float*>(&sm.zero);
    const unsigned lane =
        static_cast<unsigned>(gpu::lane_idx()) + __builtin_bit_cast(std::uint32_t, zero);
    // Matrix i is positions 16 (i % 2) .. + 15 of dims 2 j + (i / 2 ^ j / 4): one of each residue
    // modulo 8, so that its rows lie in different banks. Lane 8 i + j names its row j.
    const unsigned row = lane % 8 * 2 + (lane / 16 ^ lane / 4 % 2);
    const unsigned from_place = lane * kFromRow + Keys::swizzle_of(lane);
    const unsigned to_place = row * kToRow + (lane / 8 % 2 * 16 ^ Values::swizzle_of(row));
    const bool odd_first = lane / 16 != 0;  // row j comes from lanes 4 j to 4 j + 3
#pragma unroll 1
    for (unsigned dim = warp * 16; dim < T::kHeadDim; dim += T::kTransposers * 16) {
      std::uint8_t* const source = from.bytes[dim / kFromRow] + (from_place ^ dim % kFromRow);
      const unsigned place = dim * kToRow + to_place;
#pragma unroll
      for (unsigned first = 0; first < T::kTileN; first += kTogether * 32) {
        std::uint32_t r[kTogether][4];
#pragma unroll
        for (unsigned i = 0; i < kTogether; ++i) {
          gpu::ldmatrix_x4_trans(r[i], source + (first + i * 32) * kFromRow);
        }
#pragma unroll
        for (unsigned i = 0; i < kTogether; ++i) {
          constexpr std::uint32_t kEvenDim = 0x6420;
          constexpr std::uint32_t kOddDim = 0x7531;
          const std::uint32_t first_dim = odd_first ? kOddDim : kEvenDim;
          const std::uint32_t second_dim = odd_first ? kEvenDim : kOddDim;
          const std::uint32_t words[4] = {
              gpu::prmt(r[i][0], r[i][1], first_dim), gpu::prmt(r[i][2], r[i][3], first_dim),
              gpu::prmt(r[i][0], r[i][1], second_dim), gpu::prmt(r[i][2], r[i][3], second_dim)};
          const unsigned key = first + i * 32;
          gpu::stmatrix_x4(to.bytes[key / kToRow] + (place ^ key % kToRow), words);
        }
      }
    }
  }

  /// Keys of a V that came transposed: pairs of keys change places within each 16.
  GPU_FN void interleave(Values& tile) const {
    struct alignas(16) Chunk {
      std::uint32_t word[4];
    };
    constexpr int kChunksPerRow = Values::kPanelBytes / 16;
    constexpr int kChunks = T::kHeadDim * kChunksPerRow;
    constexpr std::uint32_t kLowPairs = 0x5410;
    constexpr std::uint32_t kHighPairs = 0x7632;
    for (int panel = 0; panel < Values::kPanels; ++panel) {
      auto* chunks = reinterpret_cast<Chunk*>(tile.bytes[panel]);
      for (int i = warp * gpu::kWarpSize + gpu::lane_idx(); i < kChunks;
           i += T::kTransposers * gpu::kWarpSize) {
        const Chunk c = chunks[i];
        chunks[i] = {{gpu::prmt(c.word[0], c.word[2], kLowPairs),
                      gpu::prmt(c.word[0], c.word[2], kHighPairs),
                      gpu::prmt(c.word[1], c.word[3], kLowPairs),
                      gpu::prmt(c.word[1], c.word[3], kHighPairs)}};
      }
    }
  }
};

}  // namespace fp8_sdpa::sm90
