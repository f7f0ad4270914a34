// A matrix tile in shared memory, laid out so that the accesses of a warp fall into different
// banks.
#pragma once

#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// How the rows of a tile avoid each other's banks.
enum class Layout {
  kPadded,    ///< each row is followed by 16 unused bytes (kPad elements)
  kSwizzled,  ///< no padding: the 16-byte chunks of a row are permuted by XOR with the row's number
};

/// A (kRows, kCols) tile of T. Its first kCols elements of a row are addressed by at(); chunks of
/// 16 bytes are contiguous in both layouts, so vector accesses work on any column that is a
/// multiple of kChunk.
template <class T, int kRows, int kCols, Layout kLayout, int kPad = 16 / sizeof(T)>
struct SharedTile {
  static constexpr int kChunk = 16 / sizeof(T);
  static constexpr int kPitch = kCols + (kLayout == Layout::kPadded ? kPad : 0);
  static constexpr int kChunksPerRow = kCols / kChunk;
  /// Rows that share one 128-byte line of all 32 banks: they take different chunks anyway.
  static constexpr int kRowsPerLine = kChunksPerRow < 8 ? 8 / kChunksPerRow : 1;
  static_assert(kCols % kChunk == 0 && (kChunksPerRow & (kChunksPerRow - 1)) == 0);

  alignas(128) T data[kRows][kPitch];

  GPU_FN static int physical_column(int row, int col) {
    if constexpr (kLayout == Layout::kPadded) {
      return col;
    } else {
      // Unsigned: divisions are then shifts and masks, and a constant part of the row folds away.
      const unsigned chunk = static_cast<unsigned>(col) / kChunk ^
                             static_cast<unsigned>(row) / kRowsPerLine % kChunksPerRow;
      return static_cast<int>(chunk * kChunk + static_cast<unsigned>(col) % kChunk);
    }
  }
  GPU_FN T* at(int row, int col) { return &data[row][physical_column(row, col)]; }
  GPU_FN const T* at(int row, int col) const { return &data[row][physical_column(row, col)]; }
};

}  // namespace fp8_sdpa::attention
