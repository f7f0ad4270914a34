// Tags, tile shapes and limits of the decode family.
#pragma once

#include <cstdint>

namespace fp8_sdpa::decode {

inline constexpr int kMinSmVersion = 80;
/// Query rows of a KV head in a tile: of seq_q * heads_q / heads_kv in all.
inline constexpr int kMaxRows = 64;
/// Rows of a warp: of mma.sync.
inline constexpr int kWarpRows = 16;
/// Warps that share keys: one, or as many as kMaxRows rows take.
inline constexpr int kMaxRowGroups = kMaxRows / kWarpRows;
constexpr int row_groups(std::int64_t rows) { return rows <= kWarpRows ? 1 : kMaxRowGroups; }
/// Of a block with so many row groups: key groups, warps, and how many a multiprocessor has room
/// for.
constexpr int key_groups(int row_groups) { return row_groups == 1 ? 4 : 2; }
constexpr int warps(int row_groups) { return row_groups * key_groups(row_groups); }
constexpr int blocks_at_once(int row_groups) { return row_groups == 1 ? 2 : 1; }
/// KV heads of a tile at head_dim 64, two where each has at most half of a warp's rows: their codes
/// lie side by side in a cache whose pages hold a token's heads together, and only both fill a line
/// of the L2 cache.
inline constexpr int kPair = 2;
inline constexpr int kPairDim = 64;  ///< head_dim
inline constexpr int kPairRows = kWarpRows / kPair;
/// A split is a multiple of so many keys, which every tile divides.
inline constexpr int kSplitMultiple = 128;
/// Of a sequence: more are not tried.
inline constexpr int kMaxSplits = 512;

/// Named as the variant: the name is in the kernel's mangled symbol, where the compiler's resource
/// report and the profiler show it.
namespace tag {
struct decode_split_kv {};
}  // namespace tag

/// kRowGroups warps share the keys that they copy, 16 query rows each; kKeyGroups such groups have
/// keys of their own. With kOfHeads of 2 rows 0 to 7 are of one KV head and rows 8 to 15 of the
/// next.
///
///   rows of a KV head     | warps: rows x keys | keys of a step at 64, 128, 256 | blocks on an SM
///   1 to 16               | 1 x 4              | 128, 128, 64                   | 2
///   17 to 64              | 4 x 2              | 64, 64, 32                     | 1
///   1 to 8, of two heads  | 1 x 4              | 128, -, -                      | 2
template <int kDim, int kGroups, int kOfHeads>
struct TileShape {
  static constexpr int kHeadDim = kDim;
  static constexpr int kHeads = kOfHeads;
  static_assert(kHeads == 1 || (kHeads == kPair && kGroups == 1));
  static constexpr int kTileDim = kHeads * kHeadDim;  ///< codes of a key
  static constexpr int kRowGroups = kGroups;
  static constexpr int kRows = kRowGroups * kWarpRows;
  static constexpr int kKeyGroups = key_groups(kRowGroups);
  static constexpr int kWarps = warps(kRowGroups);
  static constexpr int kMinBlocks = blocks_at_once(kRowGroups);
  static constexpr int kWarpKeys = kHeadDim == 256 ? 16 : 32;
  static constexpr int kTileN = kKeyGroups * kWarpKeys;  ///< keys of a step
  /// Whose copies a thread starts together: their addresses take registers, of which O at head_dim
  /// 256 leaves none.
  static constexpr int kRowsAtOnce = kRowGroups == 1 && kHeadDim == 256 ? 2 : 4;
  /// Bytes in flight hide the latency of memory: 96 KB, two blocks of which an H100 has room for
  /// and one an Ada, in at most six steps.
  static constexpr int kStages =
      96 * 1024 / (2 * kTileN * kTileDim) < 6 ? 96 * 1024 / (2 * kTileN * kTileDim) : 6;
};

}  // namespace fp8_sdpa::decode
