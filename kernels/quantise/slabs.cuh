// The quantiser of blocks of rows (Granularity::kBlock): one pass, since a block's descale needs
// that block alone. Up to three tensors in one launch: Q, K and V of a problem.
//
// A thread block has a slab of kSlabRows rows of a head in its registers: it loads them, rotates
// them, finds the largest magnitude of each block of rows, and writes the codes. For smoothing, a
// kernel before adds up the columns of shares of each head's rows; who has a slab adds the shares
// up, in their order, rotates the mean and subtracts it.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "quantise/messenger.cuh"
#include "quantise/tile.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct ColumnSums {
  using Params = SumsParams;
  using B = Block<kFrom, kDim>;
  using Element = typename B::Element;
  using Source = typename B::Source;
  using Row = typename B::Row;
  static constexpr int kVector = B::Layout::kVector;
  static constexpr int kLanesOfRow = B::kLanesOfRow;
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 2;
  static constexpr int kMinSmVersion = quantiser::kMinSmVersion;
  static constexpr int kRowsAtOnce = kThreads / kLanesOfRow;
  /// Loads of a thread that are under way together.
  static constexpr int kLoads = 8;

  struct Shared {
    Row of_rows[kRowsAtOnce];
  };

  GPU_FN static void run(const Params& params, Shared& shared) {
    const quantiser::Params& p = params.tensor;
    const auto block = static_cast<int>(gpu::block_idx().x);
    const int head = block / params.shares;
    const int first = block % params.shares * params.share_rows;
    const int left = p.seq - first;
    const int rows = left < params.share_rows ? left : params.share_rows;
    const int batch = attention::quotient(head, p.heads);
    const int row_of_thread = gpu::thread_idx() / kLanesOfRow;
    const int column = gpu::thread_idx() % kLanesOfRow * kVector;
    const Element* const from = static_cast<const Element*>(p.from) + batch * p.from_strides.batch +
                                (head - batch * p.heads.value) * p.from_strides.head +
                                first * p.from_strides.seq + column;
    float sums[kVector] = {};
    for (int row = row_of_thread; row < rows; row += kLoads * kRowsAtOnce) {
      uint4 vectors[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int at = row + i * kRowsAtOnce;
        vectors[i] = uint4{};
        if (at < rows) vectors[i] = *reinterpret_cast<const uint4*>(from + at * p.from_strides.seq);
      }
#pragma unroll
      for (const uint4& vector : vectors) {
        float x[kVector];
        Source::take_vector(vector, x);
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sums[i] += TileWork<kFrom, kDim>::is_finite(x[i]) ? x[i] : 0.0F;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) shared.of_rows[row_of_thread].x[column + i] = sums[i];
    gpu::sync_block();
    for (int i = gpu::thread_idx(); i < kDim; i += kThreads) {
      float sum = 0.0F;
#pragma unroll 8
      for (int row = 0; row < kRowsAtOnce; ++row) sum += shared.of_rows[row].x[i];
      params.sums[std::int64_t{block} * kDim + i] = sum;
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
  /// Others than an sm_90 would spill with as many.
  static constexpr int kMinBlocks =
      kDim == 256 || kFrom == Dtype::kFloat ? 1 : 1024 / kThreads - (gpu::kIsSm90a ? 0 : 1);
  static constexpr int kMinSmVersion = quantiser::kMinSmVersion;

  /// Threads that have sums of a column.
  static constexpr int kSumParts = kThreads / kDim;
  static_assert(kThreads % kDim == 0 && kMaxShares % kSumParts == 0);

  struct Shared {
    SignMasks<kDim> signs;
    typename B::Source::Hadamard hadamard[gpu::kWarpSize];
    typename B::Row sums[kSumParts];
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
    const int batch = attention::quotient(task.head, p.heads);
    return batch * strides.batch + (task.head - batch * p.heads.value) * strides.head +
           task.tile * B::kTileRows * strides.seq;
  }

  /// By all threads: the mean of the head, or of the head that dots are with.
  GPU_FN static void make_mean(const Slab& slab, const Task& task, Shared& shared) {
    using M = Messenger<kFrom, kDim>;
    const quantiser::Params& p = slab.tensor;
    const int head = p.smooth ? task.head : task.head / p.dot_group;
    const float* const sums = slab.sums + std::int64_t{head} * slab.shares * kDim;
    // Each thread some shares of a column, all on their way at once; then the first of a column
    // those sums.
    constexpr int kOfThread = kMaxShares / kSumParts;
    const int column = gpu::thread_idx() % kDim;
    const int part = gpu::thread_idx() / kDim;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int share = part * kOfThread + i;
      if (share < slab.shares) sum += sums[share * kDim + column];
    }
    shared.sums[part].x[column] = sum;
    gpu::sync_block();
    if (part == 0) {
#pragma unroll
      for (int i = 1; i < kSumParts; ++i) sum += shared.sums[i].x[column];
      shared.mean.x[column] = gpu::divide(sum, static_cast<float>(slab.summed_seq));
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
    const float quotient =
        gpu::divide(amax * factor<kDim>(p), p.e5m2 ? kLargestE5M2 : kLargestE4M3);
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
    Task task = task_of(slab, nth);
    From loaded;
    loaded.load(static_cast<const Element*>(p.from) + offset_of(p, task, p.from_strides) +
                    typename Work::Own(p).from,
                p.from_strides.seq, task.rows);
    if (p.rotate) {
      shared.signs.fill(p, kThreads);
      if (gpu::warp_idx() == kWarps - 1) shared.hadamard[gpu::lane_idx()].fill();
    }
    const bool needs_mean = slab.sums != nullptr;
    if (needs_mean) make_mean(slab, task, shared);
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
    task.codes = p.codes + offset_of(p, task, p.codes_strides);
    Work::write_codes(p, typename Work::Own(p), task, gpu::divide(1.0F, descale) * factor<kDim>(p),
                      rows);
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
