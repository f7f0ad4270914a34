// Sums of a head's columns, for its mean: of shares of its rows, by a kernel of its own.
#pragma once

#include <cstdint>

#include "quantise/tile.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

/// Where a row of a (batch, head) begins.
GPU_FN std::int64_t offset_of_row(const Params& p, int head, int row, const Strides& strides) {
  const int batch = attention::quotient(head, p.heads);
  return batch * strides.batch + (head - batch * p.heads.value) * strides.head + row * strides.seq;
}

/// Sums of columns of some rows, by kThreads threads.
template <Dtype kFrom, int kDim, int kThreads>
struct ColumnAdder {
  using B = Block<kFrom, kDim>;
  using Element = typename B::Element;
  static constexpr int kVector = B::Layout::kVector;
  static constexpr int kRowsAtOnce = kThreads / B::kLanesOfRow;
  /// Loads of a thread that are under way together.
  static constexpr int kLoads = 8;

  typename B::Row of_rows[kRowsAtOnce];

  /// Of `rows` rows from `first` on. They must then be waited for before they are read.
  GPU_FN void add(int thread, const Element* first, std::int64_t stride, int rows) {
    const int row_of_thread = thread / B::kLanesOfRow;
    const int column = thread % B::kLanesOfRow * kVector;
    const Element* const from = first + column;
    float sums[kVector] = {};
    for (int row = row_of_thread; row < rows; row += kLoads * kRowsAtOnce) {
      uint4 vectors[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int at = row + i * kRowsAtOnce;
        vectors[i] = uint4{};
        if (at < rows) vectors[i] = *reinterpret_cast<const uint4*>(from + at * stride);
      }
#pragma unroll
      for (const uint4& vector : vectors) {
        float x[kVector];
        B::Source::take_vector(vector, x);
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sums[i] += TileWork<kFrom, kDim>::is_finite(x[i]) ? x[i] : 0.0F;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) of_rows[row_of_thread].x[column + i] = sums[i];
  }
  /// Of a column, in the first `rows` of of_rows.
  GPU_FN float sum(int column, int rows = kRowsAtOnce) const {
    float sum = 0.0F;
#pragma unroll 8
    for (int row = 0; row < rows; ++row) sum += of_rows[row].x[column];
    return sum;
  }
};

template <Dtype kFrom, int kDim>
struct ColumnSums {
  using Params = SumsParams;
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 4;
  static constexpr bool kOnlySm90a = true;  ///< as who needs them
  using Shared = ColumnAdder<kFrom, kDim, kThreads>;

  GPU_FN static void run(const Params& params, Shared& shared) {
    gpu::pdl_launch_dependents();
    const quantiser::Params& p = params.tensor;
    const auto block = static_cast<int>(gpu::block_idx().x);
    const int first = block % params.shares * params.share_rows;
    const int left = p.seq - first;
    shared.add(gpu::thread_idx(),
               static_cast<const typename Shared::Element*>(p.from) +
                   offset_of_row(p, block / params.shares, first, p.from_strides),
               p.from_strides.seq, left < params.share_rows ? left : params.share_rows);
    gpu::sync_block();
    for (int i = gpu::thread_idx(); i < kDim; i += kThreads) {
      params.sums[std::int64_t{block} * kDim + i] = shared.sum(i);
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
