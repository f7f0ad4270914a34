// Work tiles that several blocks have shared (Stream-K): O and LSE of their KV splits, by a kernel
// behind the one that made them. Every multiprocessor has a part, however few work tiles are cut;
// in the block that comes last, which would read all splits alone, each split took 1.2 us at
// head_dim 256, in fp32.
//
// A warp merges some columns of 16 rows, those of one warp of the kernel before, whose lanes it
// has. It loads four splits before it adds them. Where splits are many, another kernel gives the
// work to four warps, each for a quarter of those lanes: lanes eight apart share the splits, each
// taking every fourth, eight at once, and add up.
#pragma once

#include <cstring>

#include "sm90/output/store_output.cuh"
#include "sm90/work/work.cuh"

namespace fp8_sdpa::sm90 {

/// What a warp leaves of a KV split in the workspace, by lane: accumulators of the columns that it
/// would write, and m and l of its two rows. With kHalves accumulators are divided by l, so that
/// they are below 448 or so, and rounded to half: half as many bytes on their way, and an error of
/// 2^-12 of a split's part of O, a hundredth of what E4M3 leaves of the weights of 128 keys.
template <int kHeadDim, int kKvSplits, bool kHalves>
struct WarpSplit {
  static constexpr int kAccumulators = kHeadDim / 2 / kKvSplits;
  struct alignas(16) Chunk {
    std::uint32_t word[4];
  };
  static constexpr int kOfChunk = kHalves ? 8 : 4;  ///< accumulators
  Chunk o[kAccumulators / kOfChunk][gpu::kWarpSize];
  float max[2][gpu::kWarpSize];
  float sum[2][gpu::kWarpSize];

  /// m and l of a lane.
  struct RowsOfLane {
    float max[2], sum[2];
  };

  GPU_FN void put(int lane, const Rows& rows, const float (&x)[kAccumulators]) {
    float part[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      max[h][lane] = rows.max[h];
      sum[h][lane] = rows.sum[h];
      part[h] = rows.sum[h] == 0.0F ? 0.0F : 1.0F / rows.sum[h];
    }
#pragma unroll
    for (int i = 0; i < kAccumulators; i += kOfChunk) {
      Chunk chunk;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int at = i + w * kOfChunk / 4;
        chunk.word[w] = kHalves ? attention::pack_output<false>(
                                      x[at] * part[w % 2], x[at + 1] * part[w % 2], Dtype::kHalf)
                                : __builtin_bit_cast(std::uint32_t, x[at]);
      }
      o[i / kOfChunk][lane] = chunk;
    }
  }
  GPU_FN RowsOfLane rows_of(int lane) const {
    return {{max[0][lane], max[1][lane]}, {sum[0][lane], sum[1][lane]}};
  }
  /// What accumulators in chunks are multiplied by, beside the split's weight.
  GPU_FN static float factor(float sum) { return kHalves ? sum : 1.0F; }
  GPU_FN static void unpack(const Chunk& chunk, float (&x)[kOfChunk]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (kHalves) {
        __half2 pair;
        memcpy(static_cast<void*>(&pair), &chunk.word[w], sizeof pair);
        const float2 both = gpu::half2_to_float2(pair);
        x[2 * w] = both.x;
        x[2 * w + 1] = both.y;
      } else {
        x[w] = __builtin_bit_cast(float, chunk.word[w]);
      }
    }
  }
};

template <class T>
using WarpSplitOf = WarpSplit<T::kHeadDim, T::kKvSplits, !T::kScaledMax>;

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
    static constexpr bool kScaledMax = kScaled;
    static constexpr int kTileM = kGroups * kWarpgroupRows;
    static constexpr int kConsumerWarps = kGroups * kSplits * kWarpgroupWarps;
  };
  using Params = sm90::Params;
  using Split = WarpSplitOf<T>;
  using RowsOfLane = typename Split::RowsOfLane;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kUsesPdl = true;
  struct Shared {};

  /// Tiles of 8 columns, four accumulators, that a warp merges, and warps for what one warp left.
  static constexpr int kTiles = Split::kAccumulators / 4;
  static constexpr int kUnits = kTiles % 4 == 0 ? 4 : 2;
  static constexpr int kParts = kTiles / kUnits;
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
    if constexpr (!kScaled) {
      rows.scale = attention::score_factor(score_scale<T>(p, work, warp_row + lane / 4));
    }
    float o[4 * kUnits] = {};
    add_own_splits(p, first + own, end, warp, part, lane, rows, o);
    if constexpr (kSharing > 1) add_over_lanes(kLanes, rows, o);

    const int kv_split = warp / (T::kRowGroups * kWarpgroupWarps);
    const int column = 8 * (kv_split * kTiles + part * kUnits);
    const float v_descale = kScaled ? 1.0F : p.descale_v[work.batch * p.heads_kv + work.kv_head];
    const float descale = over_output_scale(p.output, v_descale, p);
    const LaneRows own_rows = lane_rows<T>(p, warp_row + lane / 4);
    const int head = work.head + own_rows.head;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int query = own_rows.query[h];
      const bool stores = own == 0 && is_row<T>(p, own_rows, h, p.seq_q);
      std::uint16_t* const to =
          attention::row_pointer(static_cast<std::uint16_t*>(p.o), p.o_strides, work.batch, head,
                                 query) +
          (column + first_column<kUnits>(lane % 4)) / attention::elements_of_word(p.output);
      store_columns<kUnits>(o, h, output_scale(rows, h, descale), lane % 4, p.output, stores, to);
      if (column == 0 && p.lse != nullptr && lane % 4 == 0 && stores) {
        p.lse[lse_index(p, work.batch, head, query)] = log_sum_exp(rows, h);
      }
    }
  }

 private:
  /// A lane's share of a split.
  static constexpr int kChunks = 4 * kUnits / Split::kOfChunk;
  struct Part {
    RowsOfLane rows;
    typename Split::Chunk o[kChunks];
  };
  GPU_FN static Part part_of_split(const Split& split, int part, int lane) {
    Part made;
    made.rows = split.rows_of(lane);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) made.o[i] = split.o[part * kChunks + i][lane];
    return made;
  }
  /// Adds every kSharing-th split from `first` on, of which a lane loads some before it adds them.
  GPU_FN static void add_own_splits(const Params& p, int first, int end, int warp, int part,
                                    int lane, Rows& rows, float (&o)[4 * kUnits]) {
    // On the host executor, whose blocks cut a work tile in four at most, it does so twice.
    constexpr int kAtOnce = gpu::kBackend == Backend::kHost ? 2 : kSharing == 1 ? 4 : 8;
    for (int i = first; i < end; i += kAtOnce * kSharing) {
      Part parts[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int at = i + n * kSharing;
        parts[n] = part_of_split(warp_split<T>(p, at < end ? at : i, warp), part, lane);
      }
      add(parts, (end - i + kSharing - 1) / kSharing, rows, o);
    }
  }
  /// Adds the first `count` of some parts; the others are as the first is.
  template <int kParts>
  GPU_FN static void add(const Part (&parts)[kParts], int count, Rows& rows,
                         float (&o)[4 * kUnits]) {
    float weight[kParts][2];  // of accumulators
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float max = rows.max[h];
#pragma unroll
      for (const Part& part : parts) max = gpu::max_nan(max, part.rows.max[h]);
      const float rescale = gpu::exp2_approx((rows.max[h] - max) * rows.scale);
      rows.max[h] = max;
      rows.sum[h] *= rescale;
#pragma unroll
      for (int i = 0; i < 2 * kUnits; ++i) o[i / 2 * 4 + 2 * h + i % 2] *= rescale;
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        const RowsOfLane& of_part = parts[n].rows;
        const float own = n < count ? gpu::exp2_approx((of_part.max[h] - max) * rows.scale) : 0.0F;
        rows.sum[h] = gpu::fma(own, of_part.sum[h], rows.sum[h]);
        weight[n][h] = own * Split::factor(of_part.sum[h]);
      }
    }
#pragma unroll
    for (int n = 0; n < kParts; ++n) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        float x[Split::kOfChunk];
        Split::unpack(parts[n].o[c], x);
#pragma unroll
        for (int i = 0; i < Split::kOfChunk; ++i) {
          float& sum = o[c * Split::kOfChunk + i];
          sum = gpu::fma(weight[n][i / 2 % 2], x[i], sum);
        }
      }
    }
  }
  /// Of lanes `apart` apart, and so on up to a warp, which share the splits of a row.
  GPU_FN static void add_over_lanes(int apart, Rows& rows, float (&o)[4 * kUnits]) {
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float max = rows.max[h];
      for (int by = apart; by < gpu::kWarpSize; by *= 2) {
        max = gpu::max_nan(max, gpu::shfl_xor(max, by));
      }
      weight[h] = gpu::exp2_approx((rows.max[h] - max) * rows.scale);
      rows.max[h] = max;
      rows.sum[h] *= weight[h];
    }
#pragma unroll
    for (int i = 0; i < 4 * kUnits; ++i) o[i] *= weight[i / 2 % 2];
    for (int by = apart; by < gpu::kWarpSize; by *= 2) {
#pragma unroll
      for (float& sum : rows.sum) sum += gpu::shfl_xor(sum, by);
#pragma unroll
      for (float& x : o) x += gpu::shfl_xor(x, by);
    }
  }
};

}  // namespace fp8_sdpa::sm90
