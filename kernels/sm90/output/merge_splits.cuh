// Work tiles that several blocks have shared (Stream-K): O and LSE of their KV splits, by a kernel
// behind the one that made them. Every multiprocessor has a part, however few work tiles are cut;
// in the block that comes last, which would read all splits alone, each split takes 1.2 us at
// head_dim 256.
//
// A warp merges some columns of 16 rows, those of one warp of the kernel before, split after split
// in the order of their keys. Its lanes have the rows and columns of that warp's. Where splits are
// many, another kernel gives the work to four warps, each for a quarter of those lanes: lanes eight
// apart share the splits, each taking every fourth, and add up.
#pragma once

#include "sm90/output/store_output.cuh"
#include "sm90/work/work.cuh"

namespace fp8_sdpa::sm90 {

/// What a warp leaves of a KV split in the workspace, by lane: accumulators of the columns that it
/// would write, and m and l of its two rows.
template <int kHeadDim, int kKvSplits>
struct WarpSplit {
  static constexpr int kUnits = kHeadDim / 2 / kKvSplits / 4;
  struct alignas(16) Unit {
    float x[4];
  };
  Unit o[kUnits][gpu::kWarpSize];
  float max[2][gpu::kWarpSize];
  float sum[2][gpu::kWarpSize];
};

template <class T>
using WarpSplitOf = WarpSplit<T::kHeadDim, T::kKvSplits>;

/// That of warp `warp`, counted among the consumers', of KV split `split`, counted over the tail.
template <class T>
GPU_FN WarpSplitOf<T>& warp_split(const Params& p, int split, int warp) {
  return static_cast<WarpSplitOf<T>*>(p.splits)[std::int64_t{split} * T::kConsumerWarps + warp];
}

/// Whether lanes share the splits of a row: that takes four times as many blocks, and longer where
/// splits are few. On the host executor blocks cut none in more than four.
inline namespace GPU_BACKEND {
inline bool have_many_splits(const Schedule& schedule) {
  constexpr int kFew = gpu::kBackend == Backend::kDevice ? kFewSplits : 3;
  return schedule.splits() > kFew * schedule.tail_work_tiles;
}
}  // namespace GPU_BACKEND

/// One for all kernels of a head dim with so many row groups and KV splits. With kScaled, m is in
/// units of log2(e), and O has been multiplied by V's descale (Config::block_scales). With
/// kPackedGqa, heads share tiles (Config::packed_gqa). kSharing lanes share the splits of some
/// columns of a row: 1 or 4.
template <int kDim, int kGroups, int kSplits, bool kScaled, bool kPackedGqa, int kSharing>
struct MergeSplits {
  struct T {
    static constexpr int kHeadDim = kDim;
    static constexpr int kRowGroups = kGroups;
    static constexpr int kKvSplits = kSplits;
    static constexpr bool kPacks = kPackedGqa;
    static constexpr int kTileM = kGroups * kWarpgroupRows;
    static constexpr int kConsumerWarps = kGroups * kSplits * kWarpgroupWarps;
  };
  using Params = sm90::Params;
  using Split = WarpSplitOf<T>;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kUsesPdl = true;
  struct Shared {};

  /// Units that a warp merges, and warps for what one warp left.
  static constexpr int kUnits = Split::kUnits % 4 == 0 ? 4 : 2;
  static constexpr int kParts = Split::kUnits / kUnits;
  static_assert(T::kConsumerWarps * kParts % kWarps == 0);
  static constexpr int blocks(const Schedule& schedule) {
    return schedule.tail_work_tiles * (T::kConsumerWarps * kParts / kWarps) * kSharing;
  }

  GPU_FN static void run(const Params& p, Shared& /*unused*/) {
    gpu::pdl_launch_dependents();
    gpu::pdl_wait();
    constexpr int kLanes = gpu::kWarpSize / kSharing;  // of the warp before
    const int warp_of_all = static_cast<int>(gpu::block_idx().x) * kWarps + gpu::warp_idx();
    const int nth = warp_of_all / kSharing;
    const int part = nth % kParts;
    const int warp = nth / kParts % T::kConsumerWarps;
    const int in_tail = nth / (kParts * T::kConsumerWarps);
    const int first = p.schedule.first_split[in_tail];
    const int end = p.schedule.first_split[in_tail + 1];
    const int work_tile = p.work_tiles - p.schedule.tail_work_tiles + in_tail;
    const Work work = rows_of<T>(p, place_of_work_tile(p, work_tile));
    const int warp_row = work.first_row + row_of_warp<T>(warp);
    if (first == end || warp_row >= rows_of_head<T>(p)) return;

    const int own = gpu::lane_idx() / kLanes;
    const int lane = warp_of_all % kSharing * kLanes + gpu::lane_idx() % kLanes;
    Rows rows = kScaled ? rows_of_scaled_max() : Rows{};
    if constexpr (kPackedGqa) {
      rows.scale = attention::score_factor(score_scale_of_row(p, work, warp_row + lane / 4));
    } else if constexpr (!kScaled) {
      rows.scale = attention::score_factor(score_scale(p, work));
    }
    float o[4 * kUnits] = {};
    if constexpr (kSharing == 1) {
#pragma unroll 4
      for (int i = first; i < end; ++i) {
        add(part_of_split(warp_split<T>(p, i, warp), part, lane), true, rows, o);
      }
    } else {
      add_own_splits(p, first + own, end, warp, part, lane, rows, o);
    }
    for (int apart = kLanes; apart < gpu::kWarpSize; apart *= 2) {
      Part other;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        other.max[h] = gpu::shfl_xor(rows.max[h], apart);
        other.sum[h] = gpu::shfl_xor(rows.sum[h], apart);
      }
#pragma unroll
      for (int i = 0; i < 4 * kUnits; ++i) other.o[i] = gpu::shfl_xor(o[i], apart);
      add(other, true, rows, o);
    }

    const int kv_split = warp / (T::kRowGroups * kWarpgroupWarps);
    const int column = 8 * (kv_split * Split::kUnits + part * kUnits);
    const float v_descale = kScaled ? 1.0F : p.descale_v[work.batch * p.heads_kv + work.kv_head];
    const float descale = over_output_scale(p.output, v_descale, p);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = warp_row + lane / 4 + 8 * h;
      const bool stores = own == 0 && is_row_of_head<T>(p, row);
      const int head = kPackedGqa ? work.head + head_of_row(p, row) : work.head;
      std::uint16_t* const to =
          attention::row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides, work.batch, head,
                                 kPackedGqa ? query_of_row(p, row) : row) +
          (column + first_column<kUnits>(lane % 4)) / attention::elements_of_word(p.output);
      store_columns<kUnits>(o, h, output_scale(rows, h, descale), lane % 4, p.output, stores, to);
      if (column == 0 && p.lse != nullptr && lane % 4 == 0 && stores) {
        p.lse[lse_index<T>(p, work.batch, work.head, row)] = log_sum_exp(rows, h);
      }
    }
  }

 private:
  /// A lane's share of some splits.
  struct Part {
    float max[2], sum[2];
    float o[4 * kUnits];
  };
  GPU_FN static Part part_of_split(const Split& split, int part, int lane) {
    Part made;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      made.max[h] = split.max[h][lane];
      made.sum[h] = split.sum[h][lane];
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const typename Split::Unit unit = split.o[part * kUnits + u][lane];
#pragma unroll
      for (int j = 0; j < 4; ++j) made.o[4 * u + j] = unit.x[j];
    }
    return made;
  }
  /// Adds every kSharing-th split from `first` on, of which a lane loads eight before it adds them.
  GPU_FN static void add_own_splits(const Params& p, int first, int end, int warp, int part,
                                    int lane, Rows& rows, float (&o)[4 * kUnits]) {
    constexpr int kAtOnce = 8;
    for (int i = first; i < end; i += kAtOnce * kSharing) {
      Part parts[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int at = i + n * kSharing;
        parts[n] = part_of_split(warp_split<T>(p, at < end ? at : i, warp), part, lane);
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) add(parts[n], i + n * kSharing < end, rows, o);
    }
  }
  /// Adds a part, if it is `there`, to what there is.
  GPU_FN static void add(const Part& part, bool there, Rows& rows, float (&o)[4 * kUnits]) {
    float rescale[2];
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float max = there ? gpu::max_nan(rows.max[h], part.max[h]) : rows.max[h];
      rescale[h] = gpu::exp2_approx((rows.max[h] - max) * rows.scale);
      weight[h] = there ? gpu::exp2_approx((part.max[h] - max) * rows.scale) : 0.0F;
      rows.max[h] = max;
      rows.sum[h] = gpu::fma(weight[h], part.sum[h], rows.sum[h] * rescale[h]);
    }
#pragma unroll
    for (int i = 0; i < 4 * kUnits; ++i) {
      o[i] = gpu::fma(weight[i / 2 % 2], part.o[i], o[i] * rescale[i / 2 % 2]);
    }
  }
};

}  // namespace fp8_sdpa::sm90
