// From a warpgroup's sums to memory: the merge of warpgroups that share rows, then O = U / l and
// LSE; or, of a work tile that several blocks share, to the workspace.
#pragma once

#include "sm90/compute/consumer.cuh"
#include "sm90/output/merge_splits.cuh"

namespace fp8_sdpa::sm90 {

template <class T>
struct Epilogue {
  using Outputs = typename Consumer<T>::Outputs;
  /// Accumulators that a lane writes: those of some columns where several warpgroups share rows.
  static constexpr int kShare = T::kOutputRegisters / T::kKvSplits;
  static_assert(kShare == WarpSplitOf<T>::kAccumulators && kShare % 8 == 0);

  const Params& p;
  Shared<T>& sm;
  int row_group, kv_split;

  GPU_FN void run(const TileRange& range, Rows& rows, Outputs& o) const {
    const Held& held = sm.held[consumer_warp<T>()];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (T::kConfig.mma_row_sums) {
        rows.sum[h] = gpu::shfl(rows.sum[h], lane_of_thread<T>() / 4 * 4);
      } else {
        rows.sum[h] = attention::sum_over_quad(rows.sum[h]);
      }
    }
    if constexpr (T::kRagged) {
      const auto& told = told_to_warp(sm);
      if (told.work.sequence.bad_keys || told.bad_page) rows.sum[0] = rows.sum[1] = NAN;
    }
    float share[kShare];
    if constexpr (T::kKvSplits > 1) {
      merge(held.first, rows, o, share);
    } else {
#pragma unroll
      for (int i = 0; i < kShare; ++i) share[i] = o[i];
    }
    if constexpr (T::kMaySplit) {
      if (is_cut(p, range)) {
        if constexpr (T::kScaledMax) {
#pragma unroll
          for (float& x : share) x *= held.v_descale;
        }
        leave_split(range, rows, share);
        return;
      }
    }
    const LaneRows lane = lane_rows<T>(p, first_row_of_thread<T>(held.first_row));
    if (p.output == Dtype::kBFloat16) {
      store</*kAsBf16=*/true>(held, lane, rows, share);
    } else {
      store</*kAsBf16=*/false>(held, lane, rows, share);
    }
    if (p.lse != nullptr) store_lse(held, lane, rows);
  }

 private:
  using Four = typename Partials<T, true>::Four;
  GPU_FN static Four four_from(const float* x) { return {{x[0], x[1], x[2], x[3]}}; }

  /// Which of the warpgroups that share the rows this is: each writes columns of its own.
  GPU_FN int own_split() const { return T::kKvSplits > 1 ? kv_split : 0; }

  /// Warpgroups that share rows exchange m, l and the columns of O that others write; each then has
  /// its columns of the whole.
  GPU_FN void merge(bool first, Rows& rows, const Outputs& o, float (&share)[kShare]) const {
    const int thread = gpu::thread_idx() % kWarpgroupThreads;
    const int own = kv_split * T::kRowGroups + row_group;
    const int barrier = 1 + row_group;
    constexpr int kThreads = T::kKvSplits * kWarpgroupThreads;
    auto& splits = sm.partials;
    if (!first)
      gpu::named_barrier_sync(barrier, kThreads);  // those of the work tile before are read
#pragma unroll
    for (int g = 0; g < T::kKvSplits; ++g) {
      if (g == kv_split) continue;
#pragma unroll
      for (int i = g * kShare; i < (g + 1) * kShare; i += 4) {
        splits.o[own][i / 4][thread] = four_from(&o[i]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      splits.max[own][h][thread] = rows.max[h];
      splits.sum[own][h][thread] = rows.sum[h];
    }
    gpu::named_barrier_sync(barrier, kThreads);
    float weight[T::kKvSplits][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float max = kNoMax;
#pragma unroll
      for (int g = 0; g < T::kKvSplits; ++g) {
        max = gpu::max_nan(max, splits.max[g * T::kRowGroups + row_group][h][thread]);
      }
      rows.max[h] = max;
      rows.sum[h] = 0.0F;
#pragma unroll
      for (int g = 0; g < T::kKvSplits; ++g) {
        const int split = g * T::kRowGroups + row_group;
        weight[g][h] = gpu::exp2_approx((splits.max[split][h][thread] - max) * rows.scale);
        rows.sum[h] = gpu::fma(weight[g][h], splits.sum[split][h][thread], rows.sum[h]);
      }
    }
#pragma unroll
    for (float& x : share) x = 0.0F;
#pragma unroll
    for (int g = 0; g < T::kKvSplits; ++g) {
      const auto& split = splits.o[g * T::kRowGroups + row_group];
#pragma unroll
      for (int i = 0; i < kShare; i += 4) {
        const Four x = g == kv_split ? four_from(&o[g * kShare + i])
                                     : split[(kv_split * kShare + i) / 4][thread];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          share[i + j] = gpu::fma(weight[g][(i + j) / 2 % 2], x.x[j], share[i + j]);
        }
      }
    }
  }

  /// For the kernel that merges. Where, is computed anew: kept through the loop, ptxas would spill.
  GPU_FN void leave_split(const TileRange& range, const Rows& rows,
                          const float (&share)[kShare]) const {
    const int warp = pinned(gpu::thread_idx() / gpu::kWarpSize - kWarpgroupWarps);
    const int lane =
        T::kBlockScales ? lane_of_thread<T>() : pinned(gpu::thread_idx() % gpu::kWarpSize);
    const int split = p.schedule.first_split[range.tail_work_tile] + range.split;
    WarpSplitOf<T>& own = warp_split<T>(p, split, warp);
    own.put(lane, rows, share);
  }
  /// Whether the lane's row h is one of something.
  GPU_FN bool is_inside(const LaneRows& lane, int h) const {
    if constexpr (T::kRagged) {
      return is_row<T>(p, lane, h, told_to_warp(sm).work.sequence.queries);
    } else {
      return is_row<T>(p, lane, h, p.seq_q);
    }
  }
  GPU_FN void store_lse(const Held& held, const LaneRows& lane, const Rows& rows) const {
    if (gpu::thread_idx() % 4 != 0 || own_split() != 0) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!is_inside(lane, h)) continue;
      p.lse[lse_index_of_query(held, held.head + lane.head, lane.query[h])] = log_sum_exp(rows, h);
    }
  }
  GPU_FN std::int64_t lse_index_of_query(const Held& held, int head, int query) const {
    if constexpr (T::kRagged) {
      return query + attention::first_lse(p.ragged.sequences, told_to_warp(sm).work.sequence,
                                          p.heads_q.value, held.batch, head);
    } else {
      return lse_index(p, held.batch, head, query);
    }
  }
  /// From Held::o, which is the warp's first row, or the sequence's, to the lane's row.
  GPU_FN std::int64_t offset_of_row(const LaneRows& lane, int h) const {
    if constexpr (T::kPacks) {
      return lane.query[h] * p.o_strides.seq + lane.head * p.o_strides.head;
    } else {
      return (lane_of_thread<T>() / 4 + 8 * h) * p.o_strides.seq;
    }
  }
  /// Other formats than bf16 are told apart as they are stored: of a copy for each the compiler
  /// would spill.
  template <bool kAsBf16>
  GPU_FN void store(const Held& held, const LaneRows& lane, const Rows& rows,
                    const float (&share)[kShare]) const {
    constexpr int kWords = T::kHeadDim > 64 && kShare % 16 == 0 ? 4 : 2;
    const int t =
        (T::kFindsLaneToStore ? pinned(gpu::thread_idx() % gpu::kWarpSize) : lane_of_thread<T>()) %
        4;
    const Dtype output = kAsBf16 ? Dtype::kBFloat16 : p.output;
    const int column =
        (own_split() * kShare * 2 + first_column<kWords>(t)) / attention::elements_of_word(output);
    const float descale = over_output_scale(output, held.v_descale, p);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool inside = is_inside(lane, h);
      std::uint16_t* const to = held.o + (offset_of_row(lane, h) + column);
      const OutputScale scale = output_scale(rows, h, descale);
#pragma unroll
      for (int j = 0; j < kShare / 4; j += kWords) {
        store_columns<kWords>(&share[4 * j], h, scale, t, output, inside, to, 8 * j);
      }
    }
  }
};

}  // namespace fp8_sdpa::sm90
