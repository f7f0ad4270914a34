// The quantiser of blocks of rows (Granularity::kBlock): one pass, since a block's descale needs
// that block alone. Up to three tensors in one launch: Q, K and V of a problem.
//
// A thread block has a slab of kSlabRows rows of a head in its registers: it loads them, rotates
// them, finds the largest magnitude of each block of rows, and writes the codes. For smoothing, who
// has a slab of a short head adds up the head's columns itself. Of a longer one a kernel before
// adds up the columns of shares of its rows; who has a slab adds the shares up, in their order.
// Then it rotates the mean and subtracts it.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "quantise/messenger.cuh"
#include "quantise/tile.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

/// Where a row of a (batch, head) begins.
GPU_FN std::int64_t offset_of_row(const Params& p, int head, int row, const Strides& strides) {
  const int batch = attention::quotient(head, p.heads);
  return batch * strides.batch + (head - batch * p.heads.value) * strides.head + row * strides.seq;
}

/// Sums of columns of some rows, by all threads of a block.
template <Dtype kFrom, int kDim, int kThreads>
struct ColumnAdder {
  using B = Block<kFrom, kDim>;
  using Element = typename B::Element;
  static constexpr int kVector = B::Layout::kVector;
  static constexpr int kRowsAtOnce = kThreads / B::kLanesOfRow;
  /// Loads of a thread that are under way together.
  static constexpr int kLoads = 8;

  typename B::Row of_rows[kRowsAtOnce];

  /// Of `rows` rows from `first` on. Ends with a barrier of the block.
  GPU_FN void add(const Element* first, std::int64_t stride, int rows) {
    const int row_of_thread = gpu::thread_idx() / B::kLanesOfRow;
    const int column = gpu::thread_idx() % B::kLanesOfRow * kVector;
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
    gpu::sync_block();
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
  static constexpr int kMinBlocks = 2;
  static constexpr int kMinSmVersion = kMinSmVersionOfBlocks;
  using Shared = ColumnAdder<kFrom, kDim, kThreads>;

  GPU_FN static void run(const Params& params, Shared& shared) {
    gpu::pdl_launch_dependents();
    const quantiser::Params& p = params.tensor;
    const auto block = static_cast<int>(gpu::block_idx().x);
    const int first = block % params.shares * params.share_rows;
    const int left = p.seq - first;
    shared.add(static_cast<const typename Shared::Element*>(p.from) +
                   offset_of_row(p, block / params.shares, first, p.from_strides),
               p.from_strides.seq, left < params.share_rows ? left : params.share_rows);
    for (int i = gpu::thread_idx(); i < kDim; i += kThreads) {
      params.sums[std::int64_t{block} * kDim + i] = shared.sum(i);
    }
  }
};

template <Dtype kFrom, int kDim>
struct Slabs {
  using Params = SlabsParams;
  using B = Block<kFrom, kDim>;
  using Work = TileWork<kFrom, kDim>;
  using Task = typename B::Task;
  using Element = typename B::Element;
  static constexpr bool kFewRegisters = kFrom == Dtype::kFloat && kDim == 256;
  using From = std::conditional_t<kFewRegisters, InPlace<kFrom, kDim>, Loaded<kFrom, kDim>>;
  static constexpr int kWarpRows = 8 * B::kRows;
  static constexpr int kWarps = kSlabRows / kWarpRows;
  static constexpr int kThreads = kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = kDim == 256 || kFrom == Dtype::kFloat ? 1 : 1024 / kThreads;
  static constexpr int kMinSmVersion = kMinSmVersionOfBlocks;
  static constexpr bool kUsesPdl = true;

  /// Threads that have sums of a column.
  static constexpr int kSumParts = kThreads / kDim;
  using Adder = ColumnAdder<kFrom, kDim, kThreads>;
  static_assert(kThreads % kDim == 0 && kMaxShares % kSumParts == 0);
  static_assert(kSumParts <= Adder::kRowsAtOnce);

  struct Shared {
    SignMasks<kDim> signs;
    typename B::Source::Hadamard hadamard[gpu::kWarpSize];
    Adder sums;
    typename B::Row mean;
    float amax[kWarps];
  };

  /// Without addresses: they are found where they are used, and take no registers before.
  GPU_FN static Task task_of(const Slab& slab, int nth) {
    Task task{};
    task.head = nth / slab.slabs;
    const int row = nth % slab.slabs * kSlabRows;
    task.tile = row / B::kTileRows;
    const int left = slab.tensor.seq - row;
    task.rows = left < kSlabRows ? left : kSlabRows;
    return task;
  }
  GPU_FN static std::int64_t offset_of(const quantiser::Params& p, const Task& task,
                                       const Strides& strides) {
    return offset_of_row(p, task.head, task.tile * B::kTileRows, strides);
  }

  /// Each thread adds up some shares of a column, all on their way at once.
  GPU_FN static void add_shares(const Slab& slab, int head, Adder& adder) {
    const float* const sums = slab.sums + std::int64_t{head} * slab.shares * kDim;
    constexpr int kOfThread = kMaxShares / kSumParts;
    const int column = gpu::thread_idx() % kDim;
    const int part = gpu::thread_idx() / kDim;
    gpu::pdl_wait();
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int share = part * kOfThread + i;
      if (share < slab.shares) sum += sums[share * kDim + column];
    }
    adder.of_rows[part].x[column] = sum;
    gpu::sync_block();
  }

  /// By all threads: the mean of the head, or of the head that dots are with.
  GPU_FN static void make_mean(const Slab& slab, const quantiser::Params& summed, const Task& task,
                               Shared& shared) {
    using M = Messenger<kFrom, kDim>;
    const quantiser::Params& p = slab.tensor;
    const int head = p.smooth ? task.head : task.head / p.dot_group;
    const bool itself = slab.shares == 0;
    if (itself) {
      shared.sums.add(static_cast<const Element*>(summed.from) +
                          offset_of_row(summed, head, 0, summed.from_strides),
                      summed.from_strides.seq, summed.seq);
    } else {
      add_shares(slab, head, shared.sums);
    }
    const int column = gpu::thread_idx();
    if (column < kDim) {
      const float sum = shared.sums.sum(column, itself ? Adder::kRowsAtOnce : kSumParts);
      shared.mean.x[column] = gpu::divide(sum, static_cast<float>(summed.seq));
    }
    gpu::sync_block();
    if (gpu::warp_idx() != 0) return;
    typename B::Columns mean = M::columns_of(shared.mean.x);
    if (p.rotate) M::rotate_row(p, mean.x);
    if (p.smooth && p.mean != nullptr && task.tile == 0) {
      M::columns_of(p.mean + std::int64_t{task.head} * kDim) = mean;
    }
    // In the measure of rows, where it is subtracted from them.
    const float measure = p.smooth && p.rotate ? 1.0F / kHadamardFactor<kDim> : 1.0F;
#pragma unroll
    for (float& m : mean.x) m *= measure;
    M::columns_of(shared.mean.x) = mean;
  }

  /// The largest finite magnitude of a lane's. As integers, so much larger that NaN and infinities
  /// are negative: in one pass, of few registers.
  GPU_FN static float largest_finite(const typename B::Rows& rows) {
    constexpr std::uint32_t kMore = 0x00800000;
    auto most = static_cast<std::int32_t>(kMore);
#pragma unroll
    for (const auto& row : rows.x) {
#pragma unroll
      for (const auto& part : row) {
#pragma unroll
        for (const float x : part) {
          const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x) & 0x7fffffffU;
          const auto shifted = static_cast<std::int32_t>(magnitude + kMore);
          most = shifted > most ? shifted : most;
        }
      }
    }
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(most) - kMore);
  }

  /// Of the block that the warp's rows are in: a slab is one, or two.
  GPU_FN static float find_descale(const Slab& slab, const Task& task, Shared& shared,
                                   const typename B::Rows& rows) {
    const quantiser::Params& p = slab.tensor;
    const bool halves = slab.block_rows < kSlabRows;
    const bool second = halves && gpu::warp_idx() >= kWarps / 2;
    float amax = 0.0F;
    if (p.finds_amax) {
      amax = Work::amax_of_warp(largest_finite(rows));
      if (gpu::lane_idx() == 0) shared.amax[gpu::warp_idx()] = amax;
      gpu::sync_block();
      const int first = second ? kWarps / 2 : 0;
      const int end = halves && !second ? kWarps / 2 : kWarps;
#pragma unroll 1
      for (int i = first; i < end; ++i) amax = gpu::max_nan(amax, shared.amax[i]);
    }
    const int in_head = task.tile * B::kTileRows / kSlabRows * (halves ? 2 : 1) + (second ? 1 : 0);
    const int nth = in_head < slab.blocks ? in_head : slab.blocks - 1;
    float* const descale = p.descales + std::int64_t{task.head} * slab.blocks + nth;
    if (!p.finds_amax) return *descale;
    const float quotient = gpu::divide(amax * factor<kDim>(p), p.largest);
    const float found = quotient < kLeastDescale ? 1.0F : quotient;
    const int warp = second ? kWarps / 2 : 0;
    if (gpu::warp_idx() == warp && gpu::lane_idx() == 0 && in_head == nth) *descale = found;
    return found;
  }

  GPU_FN static void run(const Params& params, Shared& shared) {
    int nth = static_cast<int>(gpu::block_idx().x);
    int which = 0;
    while (nth >= params.end[which]) ++which;
    if (which > 0) nth -= params.end[which - 1];
    const Slab& slab = params.of[which];
    const quantiser::Params& p = slab.tensor;
    // Sums are launched behind all else: behind them, who needs none waits before the codes alone.
    if (!params.behind_sums) gpu::pdl_wait();
    gpu::pdl_launch_dependents();
    Task task = task_of(slab, nth);
    From loaded;
    loaded.load(static_cast<const Element*>(p.from) + offset_of(p, task, p.from_strides) +
                    typename Work::Own(p).from,
                p.from_strides.seq, task.rows);
    if (p.rotate) {
      shared.signs.fill(p, kThreads);
      if (gpu::warp_idx() == kWarps - 1) shared.hadamard[gpu::lane_idx()].fill();
    }
    const bool needs_mean = slab.summed >= 0;
    if (needs_mean) make_mean(slab, params.of[slab.summed].tensor, task, shared);
    if (needs_mean || p.rotate) gpu::sync_block();
    if (p.infinities != nullptr) Work::count(p, B::Source::infinities(loaded));
    typename B::Rows rows;
    Work::template take<true>(p, loaded, shared, rows);
    if (p.dots != nullptr) {
      const float* const with = needs_mean && !p.smooth
                                    ? shared.mean.x
                                    : p.dot_with + std::int64_t{task.head / p.dot_group} * kDim;
      Work::write_dots(p, task, with, rows);
    }
    if (p.smooth) Work::subtract(shared.mean, task.rows, rows);
    const float descale = find_descale(slab, task, shared, rows);
    gpu::pdl_wait();
    task.codes = p.codes + offset_of(p, task, p.codes_strides);
    Work::write_codes(p, typename Work::Own(p), task, gpu::divide(1.0F, descale) * factor<kDim>(p),
                      rows);
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
