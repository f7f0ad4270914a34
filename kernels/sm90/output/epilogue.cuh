// From a warpgroup's sums to memory: the merge of warpgroups, or blocks, that share rows, O = U /
// l, and LSE.
#pragma once

#include "attention/output.hpp"
#include "sm90/compute/consumer.cuh"

namespace fp8_sdpa::sm90 {

/// LSE of a lane's row h. No key seen: -inf; a NaN in l stays one.
GPU_FN float log_sum_exp(const Rows& rows, int h) {
  const float l = rows.sum[h];
  if (l == 0.0F) return -INFINITY;
  return (gpu::fma(rows.max[h], rows.scale, -kLog2WeightScale) + gpu::log2_approx(l)) *
         attention::kLn2;
}

/// Counts an arrival of this warp at a work tile and returns how many there have been. The last one
/// resets the counter, so that the next launch finds it as this one did. What a plan counts is
/// tagged: anything else that the workspace may have held, counts of other plans included, is no
/// count at all. Lane 0 counts for all, in a loop that none leaves before the others: the compiler
/// would not keep its uniform registers.
GPU_FN int arrive(std::uint64_t* counter, std::uint64_t plan_tag, int splits) {
  const std::uint64_t none = plan_tag << kCountBits;
  std::uint64_t seen = 0;
  std::uint64_t before = 0;
  int arrived = 0;
  do {
    seen = before;
    const std::uint64_t count = seen - none;
    arrived = count >> kCountBits == 0 ? static_cast<int>(count) + 1 : 1;
    const std::uint64_t next = arrived == splits ? 0 : none + static_cast<unsigned>(arrived);
    before = gpu::atomic_cas_acq_rel_if(gpu::lane_idx() == 0, counter, seen, next);
    before = std::uint64_t{gpu::shfl(static_cast<std::uint32_t>(before >> 32), 0)} << 32 |
             gpu::shfl(static_cast<std::uint32_t>(before), 0);
  } while (before != seen);
  return arrived;
}

template <class T>
struct Epilogue {
  using Outputs = typename Consumer<T>::Outputs;
  /// Accumulators that a warpgroup writes: those of some columns where several share its rows.
  static constexpr int kShare = T::kOutputRegisters / T::kKvSplits;
  static_assert(kShare % 8 == 0);
  /// What a warp leaves of a KV split: its accumulators, and of two rows a lane m and l.
  static constexpr int kSplitFloats = (kShare + 4) * gpu::kWarpSize;

  /// Accumulators that a lane leaves, and finds, at once: 16 bytes where there are many. At
  /// head_dim 64 the loop over keys of sm90_pre_transpose then comes out 1 % slower.
  static constexpr int kUnit = T::kHeadDim > 64 ? 4 : 1;
  struct alignas(kUnit * sizeof(float)) Unit {
    float x[kUnit];
  };

  const Params& p;
  Shared<T>& sm;
  int row_group, kv_split;

  GPU_FN void run(const TileRange& range, Rows& rows, Outputs& o) const {
    const Held& held = sm.held[gpu::warp_idx() - kWarpgroupWarps];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (T::kConfig.mma_row_sums) {
        rows.sum[h] = gpu::shfl(rows.sum[h], gpu::lane_idx() / 4 * 4);
      } else {
        rows.sum[h] = attention::sum_over_quad(rows.sum[h]);
      }
    }
    float share[kShare];
    if constexpr (T::kKvSplits > 1) {
      merge(held.first, rows, o, share);
    } else {
#pragma unroll
      for (int i = 0; i < kShare; ++i) share[i] = o[i];
    }
    if constexpr (T::kMaySplit) {
      if (!merge_splits(range, rows, share)) return;
    }
    if (p.output == Dtype::kBFloat16) {
      store<Dtype::kBFloat16>(held, rows, share);
    } else {
      store<Dtype::kHalf>(held, rows, share);
    }
    if (p.lse != nullptr) store_lse(held, rows);
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

  /// Of a work tile that several blocks share: a warp leaves its sums in global memory, and the one
  /// that comes last adds up all KV splits, in the order of their keys, so that it does not matter
  /// which one that is. False: it was another, and there is nothing to write.
  GPU_FN bool merge_splits(const TileRange& range, Rows& rows, float (&share)[kShare]) const {
    if (range.tail_work_tile == TileRange::kNone) return true;
    const int first = p.schedule.first_split[range.tail_work_tile];
    const int splits = p.schedule.first_split[range.tail_work_tile + 1] - first;
    if (splits == 0) return true;
    const int warp = gpu::warp_idx() - kWarpgroupWarps;
    const auto split = [&](int nth) {
      return p.splits + (std::int64_t{first + nth} * T::kConsumerWarps + warp) * kSplitFloats;
    };
    const int lane = gpu::lane_idx();
    const auto rows_of = [&](float* at) { return at + kShare * gpu::kWarpSize + lane; };
    const auto units_of = [&](float* at) { return reinterpret_cast<Unit*>(at) + lane; };
    float* const own = rows_of(split(range.split));
    Unit* const own_units = units_of(split(range.split));
#pragma unroll
    for (int i = 0; i < kShare; i += kUnit) {
      Unit unit;
#pragma unroll
      for (int j = 0; j < kUnit; ++j) unit.x[j] = share[i + j];
      own_units[i / kUnit * gpu::kWarpSize] = unit;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      own[h * gpu::kWarpSize] = rows.max[h];
      own[(2 + h) * gpu::kWarpSize] = rows.sum[h];
    }
    gpu::sync_warp();
    std::uint64_t* const counter = p.arrivals + range.tail_work_tile * T::kConsumerWarps + warp;
    const int arrived = arrive(counter, p.plan_tag, splits);
    gpu::sync_warp();
    if (arrived != splits) return false;
    float max[2] = {kNoMax, kNoMax};
#pragma unroll 4
    for (int nth = 0; nth < splits; ++nth) {
      const float* const from = rows_of(split(nth));
#pragma unroll
      for (int h = 0; h < 2; ++h) max[h] = gpu::max_nan(max[h], from[h * gpu::kWarpSize]);
    }
#pragma unroll
    for (int i = 0; i < kShare; ++i) share[i] = 0.0F;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.max[h] = max[h];
      rows.sum[h] = 0.0F;
    }
    for (int nth = 0; nth < splits; ++nth) {
      const float* const from = rows_of(split(nth));
      const Unit* const units = units_of(split(nth));
      float weight[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        weight[h] = gpu::exp2_approx((from[h * gpu::kWarpSize] - max[h]) * rows.scale);
        rows.sum[h] = gpu::fma(weight[h], from[(2 + h) * gpu::kWarpSize], rows.sum[h]);
      }
#pragma unroll
      for (int i = 0; i < kShare; i += kUnit) {
        const Unit unit = units[i / kUnit * gpu::kWarpSize];
#pragma unroll
        for (int j = 0; j < kUnit; ++j) {
          share[i + j] = gpu::fma(weight[(i + j) / 2 % 2], unit.x[j], share[i + j]);
        }
      }
    }
    return true;
  }

  /// Lanes whose number differs in bit kBit exchange half of their words: who has the bit keeps the
  /// upper ones of each two, and gets the other's.
  template <int kBit, int kWords>
  GPU_FN static void exchange(int lane, std::uint32_t (&word)[kWords]) {
    const bool upper = (lane & kBit) != 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if ((i & kBit) != 0) continue;
      std::uint32_t& low = word[i];
      std::uint32_t& high = word[i | kBit];
      const std::uint32_t other = gpu::shfl_xor(upper ? low : high, kBit);
      (upper ? low : high) = other;
    }
  }
  /// The first of a lane's two rows; the other is 8 below. By the thread's number: the compiler
  /// would keep the lane's through the loop, and spill.
  GPU_FN static int first_row(const Held& held) {
    return held.first_row + row_of_warp<T>(gpu::warp_idx() - kWarpgroupWarps) +
           gpu::thread_idx() / 4 % 8;
  }
  GPU_FN void store_lse(const Held& held, const Rows& rows) const {
    if (gpu::thread_idx() % 4 != 0 || own_split() != 0) return;
    const std::int64_t bh = static_cast<std::int64_t>(held.batch) * p.heads_q.value + held.head;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row(held) + 8 * h;
      if (row < p.seq_q) p.lse[bh * p.seq_q + row] = log_sum_exp(rows, h);
    }
  }
  /// A lane has two columns of each tile of 8, a word. Lanes of a pair exchange until each has two
  /// words of every other tile, and stores 8 bytes; where columns are many, quads go on until each
  /// lane has all four of every fourth.
  template <Dtype kOutput>
  GPU_FN void store(const Held& held, const Rows& rows, const float (&share)[kShare]) const {
    constexpr int kWords = T::kHeadDim > 64 && kShare % 16 == 0 ? 4 : 2;
    struct alignas(kWords * sizeof(std::uint32_t)) Words {
      std::uint32_t word[kWords];
    };
    const int lane = gpu::lane_idx();
    const int t = lane % 4;
    const int first_column =
        own_split() * kShare * 2 + (kWords == 4 ? 8 * t : 8 * (t % 2) + 4 * (t / 2));
    const int in_warp = lane / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool inside = first_row(held) + 8 * h < p.seq_q;
      std::uint16_t* const to = held.o + ((in_warp + 8 * h) * p.o_strides.seq + first_column);
      const bool empty = rows.sum[h] == 0.0F;  // no key seen: O may hold 0 * NaN
      const float scale = held.v_descale / rows.sum[h];
#pragma unroll
      for (int j = 0; j < kShare / 4; j += kWords) {
        Words words;
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          const float* x = &share[4 * (j + i) + 2 * h];
          words.word[i] = empty ? 0 : attention::pack_output(x[0] * scale, x[1] * scale, kOutput);
        }
        exchange<1>(t, words.word);
        if constexpr (kWords == 4) exchange<2>(t, words.word);
        if (inside) *reinterpret_cast<Words*>(to + 8 * j) = words;
      }
    }
  }
};

}  // namespace fp8_sdpa::sm90
