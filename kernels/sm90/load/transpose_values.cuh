// V into the layout of P V: V^T, with the keys of each 32 in another order.
//
// wgmma takes FP8 operands with k contiguous: P V wants V^T, rows of keys. A row-major V is
// transposed by ldmatrix.trans, byte permutes and stmatrix. Either way the keys of each 32 are
// permuted, so that the accumulators of Q K^T are the operands of P V without any exchange between
// lanes: with t = lane % 4, a lane holds of a row of S
//   keys 8 j + 2t, + 1 (j = 0..3), while the operand's k are 16 a + 4t + 2b, + 1 (a, b = 0, 1);
// so position 16 a + 4t + 2b + c of V^T holds key 16 a + 8 b + 2t + c.
#pragma once

#include "sm90/shared.cuh"

namespace fp8_sdpa::sm90 {

/// One of kWarps warps that transpose a tile of V, keys x dims, into V^T, dims and more x keys. A
/// lane has kTogether blocks of 32 keys under way.
template <class Keys, class Values, int kTogether, int kWarps>
struct ValueTransposer {
  static constexpr unsigned kKeys = Keys::kHeight;
  static constexpr unsigned kDims = Keys::kWidth;
  const float& zero_in_memory;  ///< 0
  int warp;
  /// The keys came two to a row of 128 bytes, with that width's swizzle: where they lie differs in
  /// the swizzle alone. At head_dim 64.
  bool pairs = false;

  /// 16 dims of all keys at a time, in blocks of 32 keys: what depends on the lane is computed
  /// once, and the loads of a few blocks are under way together. Of a block, a lane gets, of keys 8
  /// i + 2t and + 1, dims 2g and 2g + 1, and owes rows 2g and 2g + 1 of V^T four positions each,
  /// for a = 0 and 1.
  GPU_FN void transpose(Keys& from, Values& to) const {
    constexpr unsigned kFromRow = Keys::kPanelBytes;
    constexpr unsigned kToRow = Values::kPanelBytes;
    const unsigned lane = own_lane();
    // Matrix i is positions 16 (i % 2) .. + 15 of dims 2 j + (i / 2 ^ j / 4): one of each residue
    // modulo 8, so that its rows lie in different banks. Lane 8 i + j names its row j.
    const unsigned row = lane % 8 * 2 + (lane / 16 ^ lane / 4 % 2);
    const unsigned from_place = place_of_key(lane);
    const unsigned to_place = row * kToRow + (lane / 8 % 2 * 16 ^ Values::swizzle_of(row));
    const bool odd_first = lane / 16 != 0;  // row j comes from lanes 4 j to 4 j + 3
    // A warp alone has all of a tile, without a loop: what does not depend on the lane is then part
    // of the instructions.
#pragma unroll(kWarps == 1 ? kDims / 16 : 1)
    for (unsigned dim = warp * 16; dim < kDims; dim += kWarps * 16) {
      std::uint8_t* const source = from.bytes[dim / kFromRow] + (from_place ^ dim % kFromRow);
#pragma unroll
      for (unsigned first = 0; first < kKeys; first += kTogether * 32) {
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
          gpu::stmatrix_x4(to.bytes[key / kToRow] + dim * kToRow + (to_place ^ key % kToRow),
                           words);
        }
      }
    }
  }

  /// Zeroes in place of keys `first` and up of this warp's dims, which it transposes afterwards.
  GPU_FN void clear(Keys& from, int first) const {
    constexpr int kDimsAtOnce = 16;
    constexpr int kParts = static_cast<int>(kDims) / kDimsAtOnce;
    for (int key = first + gpu::lane_idx(); key < Keys::kHeight; key += gpu::kWarpSize) {
      for (int part = warp; part < kParts; part += kWarps) {
        *reinterpret_cast<uint4*>(from.at(key, part * kDimsAtOnce)) = {};
      }
    }
  }

  GPU_FN unsigned own_lane() const {
    const auto lane = static_cast<unsigned>(gpu::lane_idx());
    if constexpr (kWarps == 1) {
      return lane;
    } else {
      // Plus 0, loaded: else what follows from the lane is kept from tile to tile, and spilled.
      const float zero = *static_cast<const volatile float*>(&zero_in_memory);
      return lane + __builtin_bit_cast(std::uint32_t, zero);
    }
  }
  /// Where key `key` of the first 32 begins. Keys that are 32 apart have the same swizzle.
  GPU_FN unsigned place_of_key(unsigned key) const {
    if constexpr (Keys::kPanelBytes != 64) {
      return key * Keys::kPanelBytes + Keys::swizzle_of(key);
    } else {
      using Pairs = Tile<Keys::kHeight / 2, 2 * Keys::kWidth>;
      static_assert(Pairs::kPanelBytes == 2 * Keys::kPanelBytes);
      return key * Keys::kPanelBytes ^ (pairs ? Pairs::swizzle_of(key / 2) : Keys::swizzle_of(key));
    }
  }

  /// Keys of a V that came transposed: pairs of keys change places within each 16. `from` may be
  /// the tile itself.
  template <class From>
  GPU_FN void interleave(const From& from, Values& tile) const {
    static_assert(From::kPanelBytes == Values::kPanelBytes && From::kHeight >= int{kDims});
    struct alignas(16) Chunk {
      std::uint32_t word[4];
    };
    constexpr int kChunksPerRow = Values::kPanelBytes / 16;
    constexpr int kChunks = kDims * kChunksPerRow;
    constexpr std::uint32_t kLowPairs = 0x5410;
    constexpr std::uint32_t kHighPairs = 0x7632;
    for (int panel = 0; panel < Values::kPanels; ++panel) {
      const auto* source = reinterpret_cast<const Chunk*>(from.bytes[panel]);
      auto* chunks = reinterpret_cast<Chunk*>(tile.bytes[panel]);
      for (int i = warp * gpu::kWarpSize + gpu::lane_idx(); i < kChunks;
           i += kWarps * gpu::kWarpSize) {
        const Chunk c = source[i];
        chunks[i] = {{gpu::prmt(c.word[0], c.word[2], kLowPairs),
                      gpu::prmt(c.word[0], c.word[2], kHighPairs),
                      gpu::prmt(c.word[1], c.word[3], kLowPairs),
                      gpu::prmt(c.word[1], c.word[3], kHighPairs)}};
      }
    }
  }
};

/// Rows kDims and up of a V^T tile: a row of ones, the others of zeros. By `threads` threads, of
/// which this is number `thread`.
template <int kDims, class Values>
GPU_FN void write_ones(Values& tile, int thread, int threads) {
  constexpr std::uint32_t kOnes = 0x38383838;  // E4M3: 1.0 four times
  constexpr int kRowWords = Values::kPanelBytes / 4;
  constexpr int kWords = (Values::kHeight - kDims) * kRowWords;
  for (auto& panel : tile.bytes) {
    auto* words = reinterpret_cast<std::uint32_t*>(panel + kDims * Values::kPanelBytes);
    for (int i = thread; i < kWords; i += threads) words[i] = i < kRowWords ? kOnes : 0;
  }
}

}  // namespace fp8_sdpa::sm90
