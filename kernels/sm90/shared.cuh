// A block's shared memory and how tiles lie in it.
//
// Tiles are stacks of panels: rows of at most 128 bytes with the swizzle of their width, so that
// TMA writes and wgmma reads the same bytes without bank conflicts.
//
//   tile        | rows         | panels along                  | written by       | read by
//   ------------|--------------|-------------------------------|------------------|-------------
//   queries     | tile_m       | head_dim, 128 or 64 bytes     | TMA              | wgmma (A)
//   keys        | tile_n       | head_dim                      | TMA              | wgmma (B)
//   staging     | tile_n       | head_dim                      | TMA              | ldmatrix
//   values      | head_dim (+8)| keys, 128, 64 or 32 bytes     | stmatrix, TMA or | wgmma (B)
//               |              |                               | bulk copy        |
//   the same of | tile_n       | head_dim, 128 bytes           | TMA              | wgmma (B)
//   16 bits     |              |                               |                  |
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/hopper.hpp"
#include "sm90/config.hpp"
#include "sm90/work/params.hpp"

namespace fp8_sdpa::sm90 {

/// The widest swizzle whose rows divide a row of `bytes`.
constexpr gpu::Swizzle swizzle_for(int bytes) {
  return bytes % 128 == 0  ? gpu::Swizzle::k128B
         : bytes % 64 == 0 ? gpu::Swizzle::k64B
                           : gpu::Swizzle::k32B;
}

/// A stack of panels of kRows rows, kRowBytes in all.
template <int kRows, int kRowBytes>
struct alignas(1024) Tile {
  static constexpr int kHeight = kRows;
  static constexpr int kWidth = kRowBytes;
  static constexpr gpu::Swizzle kSwizzle = swizzle_for(kRowBytes);
  static constexpr int kPanelBytes = 16 << static_cast<int>(kSwizzle);
  static constexpr int kPanels = kRowBytes / kPanelBytes;
  static constexpr int kPanelSize = kRows * kPanelBytes;

  std::uint8_t bytes[kPanels][kPanelSize];

  /// Where the byte at (row, column) lies; column is a multiple of 16 in use.
  GPU_FN std::uint8_t* at(int row, int column) {
    const int offset = row * kPanelBytes + column % kPanelBytes;
    return bytes[column / kPanelBytes] +
           gpu::swizzled(static_cast<std::uint32_t>(offset), kSwizzle);
  }
  /// What the swizzle does to columns of a panel: at(row, c) is row * kPanelBytes + (c ^ this)
  /// bytes into it. Rows that are 8 apart have the same.
  GPU_FN static constexpr unsigned swizzle_of(unsigned row) {
    return row * kPanelBytes / 8 & (kPanelBytes - 16);
  }
  /// The matrix of all rows, at its first panel's start.
  GPU_FN std::uint64_t descriptor() const {
    return gpu::matrix_descriptor(bytes, 8 * kPanelBytes, 16, kSwizzle);
  }
  /// The same, of 16-bit elements, as an N-major B: its rows are k.
  GPU_FN std::uint64_t n_major_descriptor() const {
    static_assert(kSwizzle == gpu::Swizzle::k128B);
    return gpu::matrix_descriptor(bytes, 8 * kPanelBytes, kPanelSize, kSwizzle);
  }
  /// Bytes from the matrix's start to row `row` (a multiple of 8) and column `column` (of 32).
  GPU_FN static constexpr int offset(int row, int column) {
    return column / kPanelBytes * kPanelSize + row * kPanelBytes + column % kPanelBytes;
  }
};

/// What the kernel of a tag is made of.
template <class Tag>
struct Traits {
  static constexpr Config kConfig = Tag::kConfig;
  static constexpr int kHeadDim = Tag::kHeadDim;
  static constexpr int kTileM = kConfig.tile_m();
  static constexpr int kTileN = kConfig.tile_n;
  static constexpr int kStages = kConfig.stages;
  /// Work tiles whose Q is there at once: at head_dim 256 the memory has room for one.
  static constexpr int kQueryStages = kHeadDim <= 128 ? 2 : 1;
  static constexpr int kConsumers = kConfig.consumers();
  static constexpr int kConsumerWarps = kConsumers * kWarpgroupWarps;
  static constexpr int kRowGroups = kConfig.row_groups;
  static constexpr bool kVInWorkspace = kConfig.v_in_workspace();
  static constexpr bool kTransposesOnce = kConfig.transposes_once();
  static constexpr int kKvSplits = kConfig.kv_splits;
  /// Whether blocks may share a work tile (schedule.hpp).
  static constexpr bool kMaySplit = !kConfig.two_terms && !kConfig.ragged;
  static constexpr bool kRagged = kConfig.ragged;
  static constexpr bool kPacks = kConfig.packs();
  static constexpr bool kBlockScales = kConfig.block_scales;
  static constexpr bool kInt8 = kConfig.int8();
  static constexpr bool kScaledMax = kConfig.scaled_max();
  /// Whether tiles of V come into their places by copies alone: nobody transposes them here.
  static constexpr bool kCopiesValues = kVInWorkspace || kInt8;
  /// Keys of one P V multiply.
  static constexpr int kPvDepth = kInt8 ? 16 : 32;
  /// Whether a lane keeps the scale of its rows in shared memory. At head_dim 256 there is no room,
  /// and no need.
  static constexpr bool kRecallsScale = kPacks && kHeadDim < 256 && !kConfig.two_terms;

  /// Whether what follows from a thread's number is found again behind the loop over keys, which
  /// has no register for it. (At head_dim 256 that makes ptxas spill.)
  static constexpr bool kFindsThreadAgain =
      (kPacks && !kConfig.two_terms) || (kBlockScales && kHeadDim == 128);
  /// Whether the lane's number is found again where O is stored, for the same reason.
  static constexpr bool kFindsLaneToStore = kVInWorkspace && !kTransposesOnce;

  static constexpr int kScoreRegisters = kTileN / 2;     ///< S, fp32
  static constexpr int kOutputRegisters = kHeadDim / 2;  ///< O, fp32
  /// Columns of O that one P V multiply does.
  static constexpr int kPvColumns = kConfig.pv_columns > 0 ? kConfig.pv_columns : kHeadDim;
  /// A multiple of 8 rows that V^T has more than the head dim; the last P V multiply has them.
  static constexpr int kExtraRows = kConfig.mma_row_sums ? 8 : 0;

  /// Warps of the producer warpgroup that bring V into its place, or transpose it for all blocks;
  /// the other warp issues TMA.
  static constexpr int kTransposers = 3;
  /// Dims of a tile of V that are transposed at once where V is transposed for all blocks, and how
  /// many times that is done.
  static constexpr int kUnitDims = unit_dims(kHeadDim);
  static constexpr int kUnits = kHeadDim / kUnitDims;

  static_assert((kStages & (kStages - 1)) == 0 && kStages <= gpu::kWarpSize);
  static_assert(kKvSplits <= kStages);  // the loader looks back at the slots of the last tiles
  static_assert(kTileN % 32 == 0 && kTileN <= 256);
  static_assert(kHeadDim % kPvColumns == 0);
  // A warpgroup holds values of one tile while it waits for those of its next.
  static_assert(kConfig.pipeline == Pipeline::kSerial || kStages >= 2 * kKvSplits);
  static_assert(kConfig.linear_exp2 == 0 || kConfig.mma_row_sums);  // l would have to add them up
  // Whether a row is the first or the second of a lane must change no bit of it.
  static_assert(!kPacks || (kConfig.linear_exp2 & 0x5555) == (kConfig.linear_exp2 >> 1 & 0x5555));
  static_assert(!kBlockScales || (kTileN == kKeysOfBlock && kWarpgroupRows == kQueriesOfBlock));
  static_assert(!kBlockScales || (kConfig.mma_row_sums && kKvSplits == 1 && !kPacks &&
                                  kConfig.pipeline == Pipeline::kSerial));
  static_assert(!kInt8 || (kKvSplits == 1 && !kPacks && !kBlockScales && !kVInWorkspace &&
                           !kConfig.two_terms && !kConfig.mma_row_sums));
  static_assert(!kConfig.ping_pong || (kKvSplits == 1 && kConfig.pipeline == Pipeline::kSerial));
};

/// Partial results of a block whose warpgroups share rows.
template <class T, bool = (T::kKvSplits > 1)>
struct Partials {
  struct alignas(16) Four {
    float x[4];
  };
  Four o[T::kConsumers][T::kOutputRegisters / 4][kWarpgroupThreads];
  float max[T::kConsumers][2][kWarpgroupThreads];
  float sum[T::kConsumers][2][kWarpgroupThreads];
};
template <class T>
struct Partials<T, false> {};

/// Dims of a tile of V that a block transposes for all.
struct Unit {
  int batch_head;  ///< (batch, KV head)
  int tile;        ///< kNone: there is no other
  int part;        ///< which dims
  static constexpr int kNone = -1;
};
/// Two of them under way, with Transpose::kOnceByBlocks: one is loaded while the other is
/// transposed.
template <class T, bool = T::kTransposesOnce>
struct UnitBuffers {
  static constexpr int kSlots = 2;
  static constexpr int kKnown = 4;  ///< one is told while the next but one is claimed
  Tile<T::kTileN, T::kUnitDims> staging[kSlots];
  Tile<T::kUnitDims + T::kExtraRows, T::kTileN> transposed;
  gpu::MBarrier staged[kSlots];
  Unit units[kKnown];
  // Of the thread that fetches, which has no registers to spare: its next tile range, and the
  // head of the one before, which may have units left.
  int step, batch_head;
};
template <class T>
struct UnitBuffers<T, false> {};

/// What a warp of consumers will want of its work tile behind the loop over keys, where nothing
/// cold should have to be fetched; the loop has no register for it.
struct Held {
  int batch, head, first_row;
  int first_tile;  ///< of its tile range
  bool first;      ///< of the block's work tiles
  float v_descale;
  std::uint16_t* o;  ///< the warp's first row; with Config::packs() the sequence's
};

/// With Config::block_scales: what the loader says of the KV tile at a place of a ring, before its
/// keys are there. O is kept in units of the V descale of the tile that was added last.
struct alignas(8) TileScales {
  float key;    ///< K's descale, positive; NaN where there is none
  float ratio;  ///< V's descale of the tile before over that of this one
};
template <class T, bool = T::kBlockScales>
struct ScalesState {
  /// An entry is read until its tile has been added: K of as many tiles as there are stages may
  /// have been loaded since.
  static constexpr int kSlots = 2 * T::kStages;
  TileScales tiles[kSlots];
  float row_scale[T::kConsumerWarps];  ///< of a warp's rows: OwnRows::row_scale()
};
template <class T>
struct ScalesState<T, false> {};

/// With Config::ragged.
template <class T, bool = T::kRagged>
struct RaggedState {
  /// A work tile, as the loader tells consumers of it.
  struct Told {
    Work work;           ///< tiles: negative where none is left
    unsigned with_keys;  ///< of the block's work tiles before it
    int rank;            ///< of its sequence in the order
    bool bad_page;       ///< one of its pages does not exist
  };
  static constexpr int kTold = 4;
  Told told[kTold];
  gpu::MBarrier work_full[kTold], work_empty[kTold];
  unsigned nth[T::kConsumerWarps];  ///< which of the block's work tiles a warp has
  unsigned work_tile_start;         ///< of the loader: tiles before its last work tile with keys
  /// What the loader says of the tile in a staging buffer: keys that the sequence has.
  int staged_keys[T::kConfig.warp_per_tile ? T::kTransposers : 2];
};
template <class T>
struct RaggedState<T, false> {};

/// With Config::packs(), where the loop over keys has no register for it: the scale of a lane's
/// rows.
template <class T, bool = T::kRecallsScale>
struct LaneScales {
  float of_lane[T::kConsumers * kWarpgroupThreads];
};
template <class T>
struct LaneScales<T, false> {};

/// Barriers (mbarriers, one phase per use):
///
///   barrier       | arrivals a phase                     | means
///   --------------|--------------------------------------|------------------------------------
///   query_full[s] | 1 + bytes: the loader                | Q of a work tile is there
///   key_full[s]   | 1 + bytes: the loader                | K of a tile is there
///   key_empty[s]  | warps of one key group's consumers   | nobody reads it any more; that of an
///                 |                                      | work tile's last tiles: nor its Q
///   staging_full  | 1 + bytes: the loader                | V of a tile has arrived
///   staging_empty | the warps at the tile                | it has been transposed
///   value_full[s] | the warps at the tile; with          | V^T, or V, of a tile is there
///                 | kCopiesValues 1 + bytes              |
///   value_empty[s]| warps of one key group's consumers   | nobody reads it any more
///   ping_pong[g][w] | warp w of the row group before g  | its exponentials are under way
///   arrived[s]     | 1 + bytes: a thread of the transposers   | a unit of V has arrived
///   all_loaded()  | 1: the loader, with kOnceByBlocks    | it waits for no unit any more
///   work_full[s]  | 1: the loader, with Config::ragged   | a work tile has been told
///   work_empty[s] | the consumers                        | they read nothing of it any more
template <class T>
struct Shared {
  using Queries = Tile<T::kTileM, T::kHeadDim>;
  using Keys = Tile<T::kTileN, T::kHeadDim>;
  using Values = std::conditional_t<T::kInt8, Tile<T::kTileN, 2 * T::kHeadDim>,
                                    Tile<T::kHeadDim + T::kExtraRows, T::kTileN>>;
  static constexpr int kStagingBuffers = T::kConfig.warp_per_tile ? T::kTransposers : 2;
  /// A transposed V lands where it stays: then its barriers count the stages of `values`.
  static constexpr int kStagingFull = T::kStages < kStagingBuffers ? kStagingBuffers : T::kStages;

  Queries queries[T::kQueryStages];
  Keys keys[T::kStages];
  struct NoTile {};
  std::conditional_t<T::kCopiesValues, NoTile, Keys> staging[kStagingBuffers];
  Values values[T::kStages];
  Partials<T> partials;
  UnitBuffers<T> unit;
  Held held[T::kConsumerWarps];
  gpu::MBarrier query_full[T::kQueryStages];
  gpu::MBarrier key_full[T::kStages], key_empty[T::kStages];
  gpu::MBarrier value_full[T::kStages], value_empty[T::kStages];
  gpu::MBarrier staging_full[kStagingFull];
  gpu::MBarrier staging_empty[kStagingBuffers];
  bool no_tile[kStagingFull];  ///< whether staging_full says that no tile is left
  float zero;                  ///< 0
  gpu::MBarrier ping_pong[T::kConfig.ping_pong ? T::kRowGroups : 1][kWarpgroupWarps];
  RaggedState<T> ragged;
  ScalesState<T> scales;
  LaneScales<T> lane_scales;

  /// With Transpose::kOnceByBlocks, where nothing lands. (One barrier more to initialise, and ptxas
  /// spills at head_dim 256.)
  GPU_FN gpu::MBarrier& all_loaded() {
    static_assert(T::kTransposesOnce);
    return staging_full[0];
  }
};

/// Where a tile of V^T lies in the workspace: tiles of a (batch, KV head) follow each other.
template <class T>
GPU_FN std::uint8_t* workspace_tile(std::uint8_t* values, int seq_kv, int batch_head, int tile) {
  const std::int64_t tiles = (seq_kv + T::kTileN - 1) / T::kTileN;
  return values + (batch_head * tiles + tile) * std::int64_t{sizeof(typename Shared<T>::Values)};
}

/// Copies rows of V^T out to such a tile: part `part` of kUnits, the last one with the extra rows
/// behind it. By `threads` threads, of which this is number `thread`.
template <class T, class Part>
GPU_FN void copy_part(const Part& from, std::uint8_t* tile, int part, int thread, int threads) {
  using Values = typename Shared<T>::Values;
  using Chunk = uint4;
  const int rows = part + 1 == T::kUnits ? Part::kHeight : T::kUnitDims;
  const int chunks = rows * Part::kPanelBytes / int{sizeof(Chunk)};
#pragma unroll
  for (int panel = 0; panel < Part::kPanels; ++panel) {
    std::uint8_t* const to = tile + Values::offset(part * T::kUnitDims, panel * Part::kPanelBytes);
#pragma unroll 4
    for (int i = thread; i < chunks; i += threads) {
      const Chunk chunk = reinterpret_cast<const Chunk*>(from.bytes[panel])[i];
      gpu::store_global_16(reinterpret_cast<Chunk*>(to) + i, chunk);
    }
  }
}

/// The slot of the `position`-th use of a ring, counted over all work tiles, and the parity of the
/// phase that fills it; the phase that emptied it before has the other parity.
template <int kSlots>
GPU_FN int slot_of(unsigned position) {
  static_assert((kSlots & (kSlots - 1)) == 0, "positions wrap around at a power of two");
  return static_cast<int>(position % kSlots);
}
template <int kSlots>
GPU_FN int full_parity(unsigned position) {
  return static_cast<int>(position / kSlots % 2);
}
template <int kSlots>
GPU_FN int empty_parity(unsigned position) {
  return full_parity<kSlots>(position) ^ 1;
}

/// The same for a ring of any size, which is gone through place by place.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  int full_parity = 0;

  GPU_FN void next() {
    if (++slot < kSlots) return;
    slot = 0;
    full_parity ^= 1;
  }
};

}  // namespace fp8_sdpa::sm90
