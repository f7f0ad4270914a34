// What a thread does with its elements of a tile.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "quantise/block.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct TileWork {
  using B = Block<kFrom, kDim>;
  using Board = typename B::Board;
  using Element = typename B::Element;
  using Layout = typename B::Layout;
  using Row = typename B::Row;
  using Rows = typename B::Rows;
  using Shared = typename B::Shared;
  using Source = typename B::Source;
  using Task = typename B::Task;
  static constexpr int kRows = B::kRows;
  static constexpr int kSumRows = B::kSumRows;
  static constexpr int kSums = B::kSums;
  static constexpr int kTileRows = B::kTileRows;
  static constexpr int kLanesOfRow = B::kLanesOfRow;

  GPU_FN static bool is_finite(float x) { return std::fabs(x) < INFINITY; }

  /// What a thread has of every tile.
  struct Own {
    std::int64_t from, codes;  ///< its first element's offset

    GPU_FN explicit Own(const Params& p)
        : from(row_in_tile<kFrom, kDim>(0) * p.from_strides.seq + first_column(0)),
          codes(row_in_tile<kFrom, kDim>(0) * p.codes_strides.seq + first_column(0)) {}
  };

  /// A lane's elements as they are, or rotated: all, or short of the last sums and differences.
  template <bool kAll, class From, class AnyShared>
  GPU_FN static void take(const Params& p, const From& from, const AnyShared& shared, Rows& rows) {
    if (p.rotate) {
      Source::begin_rotation(from, shared.signs, shared.hadamard[gpu::lane_idx()], rows);
      finish_hadamard<kAll>(rows);
      return;
    }
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
        Source::eight(from, nth, part, rows.x[nth][part]);
      }
    }
  }

  /// From the rows of the tile that are there: the others stay zero.
  GPU_FN static void subtract(const Row& mean, int rows_there, Rows& rows) {
    struct alignas(16) Eight {
      float x[8];
    };
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
      const Eight eight = *reinterpret_cast<const Eight*>(&mean.x[first_column(part)]);
#pragma unroll
      for (int nth = 0; nth < kRows; ++nth) {
        const bool there = row_in_tile<kFrom, kDim>(nth) < rows_there;
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          if (there) rows.x[nth][part][c] -= eight.x[c];
        }
      }
    }
  }

  /// Sums of the block's columns, not rotated: the mean is rotated once. NaN and infinities count
  /// as 0.
  GPU_FN static void add_up(const Params& p, const Task& task, Row (&to)[kSums]) {
    constexpr int kVector = Layout::kVector;
    const int first_row = gpu::thread_idx() / kLanesOfRow;
    const int column = gpu::thread_idx() % kLanesOfRow * kVector;
    const Element* const from = task.from + first_row * p.from_strides.seq + column;
    uint4 vectors[kTileRows / kSumRows];
#pragma unroll
    for (int i = 0; i < kTileRows / kSumRows; ++i) {
      vectors[i] = uint4{};
      if (first_row + i * kSumRows < task.rows) {
        vectors[i] = *reinterpret_cast<const uint4*>(from + i * kSumRows * p.from_strides.seq);
      }
    }
    float sums[kVector] = {};
#pragma unroll
    for (const uint4& vector : vectors) {
      float x[kVector];
      Source::take_vector(vector, x);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i] += is_finite(x[i]) ? x[i] : 0.0F;
    }
#pragma unroll
    for (int mask = kLanesOfRow; mask < gpu::kWarpSize; mask *= 2) {
#pragma unroll
      for (float& sum : sums) sum += gpu::shfl_xor(sum, mask);
    }
    if (gpu::lane_idx() < kLanesOfRow) {
      memcpy(&to[first_row * kSums / kSumRows].x[column], sums, sizeof sums);
    }
  }

  /// Of a warp's values, by lane 0 and others.
  GPU_FN static float amax_of_warp(float amax) {
#pragma unroll
    for (int mask = gpu::kWarpSize / 2; mask > 0; mask /= 2) {
      amax = gpu::max_nan(amax, gpu::shfl_xor(amax, mask));
    }
    return amax;
  }

  /// The largest magnitude of a warp's rows; kFinite: of those values that are finite.
  template <bool kFinite>
  GPU_FN static float amax_of(const Rows& rows) {
    float amax = 0.0F;
#pragma unroll
    for (const auto& row : rows.x) {
#pragma unroll
      for (const auto& part : row) {
#pragma unroll
        for (const float x : part) {
          amax = gpu::max_nan(amax, !kFinite || is_finite(x) ? std::fabs(x) : 0.0F);
        }
      }
    }
    return amax_of_warp(amax);
  }

  /// Of rotated rows that are short of the last sums and differences: the larger of |a + b| and
  /// |a - b| is |a| + |b|, as rounded as they are.
  GPU_FN static float amax_of_last(const Rows& rows) {
    constexpr int kHalf = kParts<kDim> / 2;
    float amax = 0.0F;
#pragma unroll
    for (const auto& row : rows.x) {
#pragma unroll
      for (int part = 0; part < kHalf; ++part) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          amax = gpu::max_nan(amax, std::fabs(row[part][c]) + std::fabs(row[part + kHalf][c]));
        }
      }
    }
    return amax_of_warp(amax);
  }

  template <class From>
  GPU_FN static float find_amax(const Params& p, const From& from, const Board& board,
                                const Shared& shared) {
    Rows rows;
    if (p.rotate && !p.smooth) {
      take<false>(p, from, shared, rows);
      const float amax = amax_of_last(rows);
      if (is_finite(amax)) return amax;
    }
    take<true>(p, from, shared, rows);
    if (p.smooth) subtract(board.mean_for_amax, board.found().rows, rows);
    const float amax = amax_of<false>(rows);
    // Signed bytes have no NaN: their descale tells of one.
    const bool tells = p.format == Dtype::kInt8 && std::isnan(amax);
    return is_finite(amax) || tells ? amax : amax_of<true>(rows);
  }

  GPU_FN static void write_codes(const Params& p, const Own& own, const Task& task, float inverse,
                                 const Rows& rows) {
    if (p.format == Dtype::kE4M3) {
      write_codes_of<Dtype::kE4M3>(p, own, task, inverse, rows);
    } else if (p.format == Dtype::kE5M2) {
      write_codes_of<Dtype::kE5M2>(p, own, task, inverse, rows);
    } else {
      write_codes_of<Dtype::kInt8>(p, own, task, inverse, rows);
    }
  }
  /// The integer nearest to x, -127 to 127, ties to even, as the lowest byte; of NaN 127.
  GPU_FN static std::uint32_t to_int8(float x) {
    constexpr float kLargest = 127.0F;
    constexpr float kRounds = 0x1.8p23F;  // behind it a float has no fraction
    x = x < kLargest ? x : kLargest;
    x = x > -kLargest ? x : -kLargest;
    return __builtin_bit_cast(std::uint32_t, x + kRounds);
  }
  template <Dtype kTo>
  GPU_FN static std::uint32_t two_codes(const float* x, float inverse) {
    const float first = x[0] * inverse;
    const float second = x[1] * inverse;
    if constexpr (kTo == Dtype::kE4M3) return gpu::float2_to_e4m3x2(first, second);
    if constexpr (kTo == Dtype::kE5M2) return gpu::float2_to_e5m2x2(first, second);
    return (to_int8(first) & 0xFFU) | (to_int8(second) & 0xFFU) << 8;
  }
  template <Dtype kTo>
  GPU_FN static void write_codes_of(const Params& p, const Own& own, const Task& task,
                                    float inverse, const Rows& rows) {
    const auto codes = [inverse](const float* x) { return two_codes<kTo>(x, inverse); };
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
      if (row_in_tile<kFrom, kDim>(nth) >= task.rows) continue;
      std::uint8_t* const to = task.codes + own.codes + nth * 8 * p.codes_strides.seq;
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
        const float(&x)[8] = rows.x[nth][part];
        *reinterpret_cast<uint2*>(to + 32 * part) =
            make_uint2(codes(x) | codes(x + 2) << 16, codes(x + 4) | codes(x + 6) << 16);
      }
    }
  }

  /// The dot product of each row with a vector of its group's: of a lane's columns, then of the
  /// quad.
  GPU_FN static void write_dots(const Params& p, const Task& task, const float* with,
                                const Rows& rows) {
    float sum[kRows] = {};
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const float w = with[first_column(part) + c];
#pragma unroll
        for (int nth = 0; nth < kRows; ++nth)
          sum[nth] = gpu::fma(rows.x[nth][part][c], w, sum[nth]);
      }
    }
    float* const to = p.dots + std::int64_t{task.head} * p.seq + task.tile * kTileRows;
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
      sum[nth] += gpu::shfl_xor(sum[nth], 1);
      sum[nth] += gpu::shfl_xor(sum[nth], 2);
      const int row = row_in_tile<kFrom, kDim>(nth);
      if (gpu::lane_idx() % 4 == 0 && row < task.rows) to[row] = sum[nth] * factor<kDim>(p);
    }
  }

  GPU_FN static void count(const Params& p, int infinities) {
#pragma unroll
    for (int mask = gpu::kWarpSize / 2; mask > 0; mask /= 2) {
      infinities += gpu::shfl_xor(infinities, mask);
    }
    if (gpu::lane_idx() == 0 && infinities != 0) {
      gpu::atomic_add_relaxed(p.infinities, static_cast<std::uint32_t>(infinities));
    }
  }

  template <class From>
  GPU_FN static void write(const Params& p, const Own& own, const From& from, const Board& board,
                           const Shared& shared) {
    const Task& task = board.written();
    if (p.infinities != nullptr) count(p, Source::infinities(from));
    Rows rows;
    take<true>(p, from, shared, rows);
    if (p.dots != nullptr) {
      write_dots(p, task, p.dot_with + std::int64_t{task.head / p.dot_group} * kDim, rows);
    }
    if (p.smooth) subtract(board.mean_for_codes, task.rows, rows);
    write_codes(p, own, task, board.inverse, rows);
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
