// The rows of a slab in the registers of warpgroups, rotated on the tensor cores by wgmma.
//
// A slab lies in shared memory as TMA writes it: panels of 128 bytes a row, with the swizzle of
// 128 bytes. A warpgroup has 64 of its rows, or both halves. With g = lane / 4 and t = lane % 4, a
// lane of warp w of a warpgroup has of rows 16 w + g and 16 w + g + 8 the columns 32 i + 8 t .. +
// 7, i < head_dim / 32: 8 codes at a time.
//
// wgmma wants and gives other columns than these. The Hadamard matrix, which is its B, has its rows
// and columns in an order that makes up for that. B has the signs of the rotation, too.
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/hopper.hpp"
#include "quantise/tile.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

inline constexpr int kPanelRowBytes = 128;
inline constexpr int kHalfRows = 64;  ///< of wgmma, and of a warpgroup
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;

/// The Hadamard matrix of up to 128 columns as wgmma's B. That of 256 columns is two of 128, of
/// which the sums and the differences are taken.
template <Dtype kFrom, int kDim>
struct RotationMatrix {
  static constexpr int kSpan = kDim < 128 ? kDim : 128;
  static constexpr int kSpans = kDim / kSpan;
  static constexpr int kPanelColumns = kPanelRowBytes / 2;
  static constexpr int kPanelSize = kSpan * kPanelRowBytes;
  static constexpr int kStep = 16;  ///< of k
  static constexpr int kSteps = kSpan / kStep;

  alignas(1024) std::uint8_t bytes[kSpans][kSpan / kPanelColumns][kPanelSize];

  /// The column of a span that B's row `k` is multiplied with: A has a lane's elements where they
  /// are.
  GPU_FN static constexpr int column_of_row(int k) {
    const int step = k / kStep;
    const int in_step = k % kStep;
    return step / 2 * 32 + in_step % 8 / 2 * 8 + step % 2 * 4 + in_step / 8 * 2 + in_step % 2;
  }
  /// The column of a span that column `n` of the product is.
  GPU_FN static constexpr int column_of_product(int n) {
    return n / 32 * 32 + n % 8 / 2 * 8 + n / 8 % 4 * 2 + n % 2;
  }

  /// By `threads` threads. For the async proxy they fence, then they wait for each other.
  GPU_FN void fill(const Params& p, int thread, int threads) {
    constexpr std::uint32_t kOnes = kFrom == Dtype::kHalf ? 0x3c003c00 : 0x3f803f80;
    constexpr std::uint32_t kMinus = 0x80008000;  // both of a word
    constexpr int kColumns = 8;                   // of 16 bytes
    constexpr int kOfRow = kSpan / kColumns;
    for (int i = thread; i < kDim * kOfRow; i += threads) {
      const int span = i / (kSpan * kOfRow);
      const int k = i / kOfRow % kSpan;
      const int n = i % kOfRow * kColumns;
      const auto from = static_cast<unsigned>(column_of_row(k));
      const bool flip = flips(p, span * kSpan + static_cast<int>(from));
      const bool minus = is_odd(from & static_cast<unsigned>(column_of_product(n))) != flip;
      // Columns n and n + 1 of the eight differ in bit 0 of their own, n + 2 in bit 3, n + 4 in 4.
      const std::uint32_t first = kOnes ^ (minus ? kMinus : 0) ^ from << 31;
      const std::uint32_t bit3 = (from >> 3 & 1U) * kMinus;
      const std::uint32_t bit4 = (from >> 4 & 1U) * kMinus;
      const auto offset = static_cast<std::uint32_t>(k * kPanelRowBytes + n % kPanelColumns * 2);
      *reinterpret_cast<uint4*>(bytes[span][n / kPanelColumns] +
                                gpu::swizzled(offset, gpu::Swizzle::k128B)) =
          make_uint4(first, first ^ bit3, first ^ bit4, first ^ bit3 ^ bit4);
    }
  }
  GPU_FN std::uint64_t descriptor(int span, int step) const {
    return gpu::advance_descriptor(
        gpu::matrix_descriptor(bytes[span], 8 * kPanelRowBytes, kPanelSize, gpu::Swizzle::k128B),
        step * kStep * kPanelRowBytes);
  }
};

/// A slab in shared memory.
template <Dtype kFrom, int kDim>
struct alignas(1024) SlabTile {
  static constexpr int kElement = kFrom == Dtype::kFloat ? 4 : 2;
  static constexpr int kPanelColumns = kPanelRowBytes / kElement;
  static constexpr int kPanels = kDim / kPanelColumns;

  std::uint8_t bytes[kPanels][kSlabRows * kPanelRowBytes];

  /// Where a lane's 16 bytes at (row, column) lie in a panel, column < 32.
  GPU_FN static std::uint32_t offset(int row, int column) {
    const auto bytes = static_cast<std::uint32_t>(row * kPanelRowBytes + column * kElement);
    return gpu::swizzled(bytes, gpu::Swizzle::k128B);
  }
};

/// What a lane has of a slab. kHalves: of the slab that a warpgroup has, from `first_half` on.
template <Dtype kFrom, int kDim, int kHalves>
struct SlabRows {
  using Matrix = RotationMatrix<kFrom, kDim>;
  using Tile = SlabTile<kFrom, kDim>;
  using Source = quantiser::Source<kFrom, kDim>;
  static constexpr int kSpan = Matrix::kSpan;
  static constexpr int kSpans = Matrix::kSpans;
  static constexpr int kVectors = kFrom == Dtype::kFloat ? 2 : 1;
  static constexpr gpu::Float16 kType =
      kFrom == Dtype::kHalf ? gpu::Float16::kHalf : gpu::Float16::kBFloat16;

  int first_row;         ///< of the lane's, in the slab
  std::uint32_t offset;  ///< of its first 16 bytes, in a panel
  /// As wgmma leaves them: of eight columns two a word of four.
  float x[kHalves][kSpans][kSpan / 2];

  GPU_FN explicit SlabRows(int first_half)
      : first_row(kHalfRows * first_half + gpu::warp_idx() % kWarpgroupWarps * 16 +
                  gpu::lane_idx() / 4),
        offset(Tile::offset(first_row, first_column(0))) {}

  /// Of a half, the first or the second of the lane's rows in it.
  GPU_FN int row(int half, int nth) const { return first_row + kHalfRows * half + 8 * nth; }
  /// The element in column first_column(part) + c.
  GPU_FN float& at(int half, int nth, int part, int c) {
    constexpr int kPartsOfSpan = kSpan / 32;
    return x[half][part / kPartsOfSpan][16 * (part % kPartsOfSpan) + c / 2 * 4 + 2 * nth + c % 2];
  }
  /// f(half, nth, part) for each eight elements.
  template <class F>
  GPU_FN static void for_each_eight(const F& f) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int nth = 0; nth < 2; ++nth) {
#pragma unroll
        for (int part = 0; part < kParts<kDim>; ++part) f(half, nth, part);
      }
    }
  }

  /// The `i`-th 16 bytes of eight elements. The swizzle is the same in rows that are 8 apart, and
  /// an exclusive or, as is the way from one 16 bytes to the next.
  GPU_FN uint4 vector(const Tile& tile, int half, int nth, int part, int i) const {
    constexpr int kPartBytes = 32 * Tile::kElement;
    const int column = part * kPartBytes;
    const auto further = static_cast<std::uint32_t>(column % kPanelRowBytes + 16 * i);
    return *reinterpret_cast<const uint4*>(tile.bytes[column / kPanelRowBytes] +
                                           (offset ^ further) +
                                           (kHalfRows * half + 8 * nth) * kPanelRowBytes);
  }
  GPU_FN void eight(const Tile& tile, int half, int nth, int part, float (&to)[8]) const {
    constexpr int kVector = 8 / kVectors;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float some[kVector];
      Source::take_vector(vector(tile, half, nth, part, i), some);
#pragma unroll
      for (int c = 0; c < kVector; ++c) to[i * kVector + c] = some[c];
    }
  }
  GPU_FN void take(const Tile& tile) {
    for_each_eight([&](int half, int nth, int part) {
      float from[8];
      eight(tile, half, nth, part, from);
#pragma unroll
      for (int c = 0; c < 8; ++c) at(half, nth, part, c) = from[c];
    });
  }
  GPU_FN int infinities(const Tile& tile) const {
    int count = 0;
    for_each_eight([&](int half, int nth, int part) {
      float from[8];
      eight(tile, half, nth, part, from);
#pragma unroll
      for (const float value : from) count += static_cast<int>(std::fabs(value) == INFINITY);
    });
    return count;
  }

  /// A's words of eight columns; of float, the `term`-th of three that add up to it.
  GPU_FN void operand(const Tile& tile, int half, int nth, int part, int term,
                      std::uint32_t (&words)[4]) const {
    if constexpr (kFrom == Dtype::kFloat) {
      float left[8];
      eight(tile, half, nth, part, left);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = Source::cut(&left[2 * i]);
        if (term > 0) words[i] = Source::cut(&left[2 * i]);
        if (term > 1) words[i] = Source::cut(&left[2 * i]);
      }
    } else {
      const uint4 four = vector(tile, half, nth, part, 0);
      words[0] = four.x;
      words[1] = four.y;
      words[2] = four.z;
      words[3] = four.w;
    }
  }
  /// The rows rotated, but for the factor 1 / sqrt(head_dim).
  GPU_FN void rotate(const Tile& tile, const Matrix& matrix) {
    constexpr int kTerms = kFrom == Dtype::kFloat ? 3 : 1;
#pragma unroll
    for (auto& spans : x) {
#pragma unroll
      for (auto& registers : spans) gpu::forget_registers(registers);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
#pragma unroll
        for (int term = 0; term < kTerms; ++term) {
          multiply(tile, matrix, half, span, term, x[half][span]);
        }
      }
    }
    if constexpr (kSpans == 2) {
#pragma unroll
      for (auto& spans : x) {
#pragma unroll
        for (int i = 0; i < kSpan / 2; ++i) {
          const float sum = spans[0][i] + spans[1][i];
          spans[1][i] = spans[0][i] - spans[1][i];
          spans[0][i] = sum;
        }
      }
    }
  }

 private:
  /// Steps of k whose words a lane holds at a time: as many as there are registers for.
  static constexpr int kAtOnce = kDim == 256 ? Matrix::kSteps : 4;

  GPU_FN void multiply(const Tile& tile, const Matrix& matrix, int half, int span, int term,
                       float (&d)[kSpan / 2]) const {
#pragma unroll
    for (int first = 0; first < Matrix::kSteps; first += kAtOnce) {
      std::uint32_t a[kAtOnce][4];
#pragma unroll
      for (int part = 0; part < kAtOnce / 2; ++part) {
        std::uint32_t words[2][4];
#pragma unroll
        for (int nth = 0; nth < 2; ++nth) {
          operand(tile, half, nth, span * (kSpan / 32) + first / 2 + part, term, words[nth]);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          a[2 * part + i / 4][i % 4] = words[i % 2][i / 4 * 2 + i % 4 / 2];
        }
      }
      gpu::pin_registers(d);
      gpu::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        gpu::wgmma_m64k16<kType>(d, a[i], matrix.descriptor(span, first + i),
                                 term > 0 || first + i > 0);
      }
      gpu::wgmma_commit();
      gpu::wgmma_wait<0>();
      gpu::pin_registers(d);
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
