// What a team of warpgroups does with a slab.
#pragma once

#include <cmath>
#include <cstdint>

#include "quantise/column_sums.cuh"
#include "quantise/messenger.cuh"
#include "quantise/slab_rows.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

/// A slab of a tensor of the launch.
struct Task {
  int which = -1;  ///< tensor; -1: there is no slab
  int head = 0;
  int slab = 0;  ///< of the head

  GPU_FN int row() const { return slab * kSlabRows; }
  GPU_FN int rows(const Slab& of) const {
    const int left = of.tensor.seq - row();
    return left < kSlabRows ? left : kSlabRows;
  }
};

/// The block's `nth`: it has a share of each tensor's, one after the other.
GPU_FN Task task_of_block(const SlabsParams& params, int nth) {
  const auto block = static_cast<int>(gpu::block_idx().x);
  for (int which = 0; which < params.tensors; ++which) {
    const Slab& slab = params.of[which];
    const bool has_more = block < slab.left_over;
    const int count = slab.of_block + (has_more ? 1 : 0);
    if (nth < count) {
      nth += block * slab.of_block + (has_more ? block : slab.left_over);
      Task task;
      task.which = which;
      task.head = attention::quotient(nth, slab.slabs);
      task.slab = nth - task.head * slab.slabs.value;
      return task;
    }
    nth -= count;
  }
  return {};
}

/// A thread block: its teams and their shared memory.
template <Dtype kFrom, int kDim>
struct SlabBlock {
  using Matrix = RotationMatrix<kFrom, kDim>;
  using Tile = SlabTile<kFrom, kDim>;

  /// A warpgroup has half a slab, or, where rows are short, all of it.
  static constexpr int kHalves = kDim == 64 ? 2 : 1;
  using Rows = SlabRows<kFrom, kDim, kHalves>;
  static constexpr int kTeamWarps = 2 / kHalves * kWarpgroupWarps;
  static constexpr int kTeamThreads = kTeamWarps * gpu::kWarpSize;
  static constexpr int kTeams = (kDim == 256 || kFrom == Dtype::kFloat ? 8 : 16) / kTeamWarps;
  static constexpr int kThreads = kTeams * kTeamThreads;
  using Adder = ColumnAdder<kFrom, kDim, kTeamThreads>;

  template <int kSlots>
  struct TeamMemory {
    Tile tiles[kSlots];  ///< what is loaded
    gpu::MBarrier full[kSlots];
    Adder sums;
    typename Block<kFrom, kDim>::Row mean;
    /// Of two slabs in turn, so that one barrier a slab is enough.
    float amax[2][2][kWarpgroupWarps];
  };
  template <int kSlots>
  struct Memory {
    TeamMemory<kSlots> teams[kTeams];
    Matrix matrix;
  };
  static constexpr int kMostBytes = 227 * 1024;
  static constexpr int kSlots = sizeof(Memory<3>) <= kMostBytes   ? 3
                                : sizeof(Memory<2>) <= kMostBytes ? 2
                                                                  : 1;
  using Shared = Memory<kSlots>;
};

template <Dtype kFrom, int kDim>
struct SlabTeam {
  using S = SlabBlock<kFrom, kDim>;
  using Adder = typename S::Adder;
  using M = Messenger<kFrom, kDim>;
  using Rows = typename S::Rows;
  using Shared = typename S::Shared;
  using Tile = typename S::Tile;
  using Work = TileWork<kFrom, kDim>;
  static constexpr int kHalves = S::kHalves;
  static constexpr int kSlots = S::kSlots;
  static constexpr int kTeamThreads = S::kTeamThreads;
  /// Threads that have sums of a column.
  static constexpr int kSumParts = kTeamThreads / kDim;
  static_assert(kTeamThreads % kDim == 0 && kMaxShares % kSumParts == 0);
  static_assert(kSumParts <= Adder::kRowsAtOnce);

  const SlabsParams& params;
  Shared& shared;
  int mean_of = -1;  ///< head
  int turn = 0;      ///< of the team's tasks

  GPU_FN static int team() { return gpu::warp_idx() / S::kTeamWarps; }
  GPU_FN static int thread() { return gpu::thread_idx() % kTeamThreads; }
  GPU_FN static int first_half() { return thread() / kWarpgroupThreads; }
  GPU_FN int slot() const { return turn % kSlots; }
  GPU_FN typename S::template TeamMemory<kSlots>& own() const { return shared.teams[team()]; }
  GPU_FN static void sync_team() { gpu::named_barrier_sync(1 + team(), kTeamThreads); }

  /// The team's `nth` task.
  GPU_FN Task task(int nth) const { return task_of_block(params, nth * S::kTeams + team()); }
  /// By one thread: starts the load of a task's slab.
  GPU_FN void load(int nth, int to) const {
    const Task next = task(nth);
    if (next.which < 0) return;
    const Slab& slab = params.of[next.which];
    const int batch = attention::quotient(next.head, slab.tensor.heads);
    const int head = next.head - batch * slab.tensor.heads.value;
    gpu::MBarrier& full = own().full[to];
    gpu::mbarrier_arrive_expect_tx(full, sizeof(Tile));
#pragma unroll
    for (int i = 0; i < Tile::kPanels; ++i) {
      gpu::tma_load_4d(own().tiles[to].bytes[i], slab.map, full, i * kPanelRowBytes, next.row(),
                       head * slab.head_step, batch * slab.batch_step);
    }
  }

  GPU_FN void run() {
    for (Task next = task(0); next.which >= 0; next = task(turn)) {
      quantise(params.of[next.which], next);
      ++turn;
    }
    gpu::pdl_wait();
  }

 private:
  /// Each thread adds up some shares of a column, all on their way at once.
  GPU_FN void add_shares(const Slab& slab, int head) {
    constexpr int kOfThread = kMaxShares / kSumParts;
    const int column = thread() % kDim;
    const int part = thread() / kDim;
    const float* const sums =
        slab.sums + (std::int64_t{head} * slab.shares + part * kOfThread) * kDim + column;
    const int left = slab.shares - part * kOfThread;
    gpu::pdl_wait();
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      if (i < left) sum += sums[i * kDim];
    }
    own().sums.of_rows[part].x[column] = sum;
  }

  /// The mean of the head, or of the head that dots are with.
  GPU_FN void make_mean(const Slab& slab, const Task& task) {
    const Params& p = slab.tensor;
    const Params& summed = params.of[slab.summed].tensor;
    const int head = p.smooth ? task.head : task.head / p.dot_group;
    auto& mean = own().mean;
    if (head != mean_of) {
      mean_of = head;  // the one before was used up before the team last met
      const bool itself = slab.shares == 0;
      if (itself) {
        own().sums.add(thread(),
                       static_cast<const typename Adder::Element*>(summed.from) +
                           offset_of_row(summed, head, 0, summed.from_strides),
                       summed.from_strides.seq, summed.seq);
      } else {
        add_shares(slab, head);
      }
      sync_team();
      const int column = thread();
      if (column < kDim) {
        const float sum = own().sums.sum(column, itself ? Adder::kRowsAtOnce : kSumParts);
        mean.x[column] = gpu::divide(sum, static_cast<float>(summed.seq));
      }
      sync_team();
      if (p.rotate && thread() < gpu::kWarpSize) {
        typename M::Columns columns = M::columns_of(mean.x);
        M::rotate_row(p, columns.x);
        M::columns_of(mean.x) = columns;
      }
      sync_team();
    }
    if (!p.smooth || p.mean == nullptr || task.slab != 0) return;
    for (int i = thread(); i < kDim; i += kTeamThreads) {
      p.mean[std::int64_t{task.head} * kDim + i] = mean.x[i];
    }
  }

  /// The dot product of each row with a vector of its group's.
  GPU_FN void write_dots(const Slab& slab, const Task& task, Rows& rows) const {
    const Params& p = slab.tensor;
    const float* const with = slab.summed >= 0 && !p.smooth
                                  ? own().mean.x
                                  : p.dot_with + std::int64_t{task.head / p.dot_group} * kDim;
    float sum[kHalves][2] = {};
    Rows::for_each_eight([&](int half, int nth, int part) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        sum[half][nth] =
            gpu::fma(rows.at(half, nth, part, c), with[first_column(part) + c], sum[half][nth]);
      }
    });
    float* const to = p.dots + std::int64_t{task.head} * p.seq + task.row();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int nth = 0; nth < 2; ++nth) {
        float& of_row = sum[half][nth];
        of_row += gpu::shfl_xor(of_row, 1);
        of_row += gpu::shfl_xor(of_row, 2);
        const int row = rows.row(half, nth);
        if (gpu::lane_idx() % 4 == 0 && row < task.rows(slab)) to[row] = of_row * factor<kDim>(p);
      }
    }
  }

  /// From the rows that are there: the others stay zero. The rows are short of a factor.
  GPU_FN void subtract_mean(const Slab& slab, const Task& task, Rows& rows) const {
    const float measure = -1.0F / factor<kDim>(slab.tensor);
    const int there = task.rows(slab);
    Rows::for_each_eight([&](int half, int nth, int part) {
      const bool is_there = rows.row(half, nth) < there;
      const float times = is_there ? measure : 0.0F;
      const float* const eight = &own().mean.x[first_column(part)];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        float& x = rows.at(half, nth, part, c);
        x = gpu::fma(eight[c], times, x);
      }
    });
  }

  /// The largest finite magnitude of a lane's in half a slab. As integers without a sign, so much
  /// larger that those of NaN and infinities begin anew: two instructions an element.
  GPU_FN static float largest_finite(const float (&spans)[Rows::kSpans][Rows::kSpan / 2]) {
    constexpr std::uint32_t kMore = 0x01000000;
    std::uint32_t most = kMore;
#pragma unroll
    for (const auto& span : spans) {
#pragma unroll
      for (const float x : span) {
        const std::uint32_t shifted = (__builtin_bit_cast(std::uint32_t, x) << 1) + kMore;
        most = shifted > most ? shifted : most;
      }
    }
    return __builtin_bit_cast(float, (most - kMore) >> 1);
  }
  /// What the codes of the warpgroup's halves are made by. A slab is one block of rows, or two, or
  /// a part of one whose descale is given. Where the team meets, all have what was loaded, and the
  /// next load to that place begins.
  GPU_FN void find_descales(const Slab& slab, const Task& task, const Rows& rows,
                            float (&descale)[kHalves]) const {
    const Params& p = slab.tensor;
    const bool apart = slab.block_rows < kSlabRows;
    auto& amax = own().amax[turn % 2];
    if (p.finds_amax) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const float of_warp = Work::amax_of_warp(largest_finite(rows.x[half]));
        if (gpu::lane_idx() == 0) {
          amax[first_half() + half][gpu::warp_idx() % kWarpgroupWarps] = of_warp;
        }
      }
    }
    sync_team();
    if (thread() == 0) load(turn + kSlots, slot());
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int own_half = first_half() + half;
      const int in_head = apart ? 2 * task.slab + own_half : task.slab;
      const int nth = in_head < slab.blocks ? in_head : slab.blocks - 1;
      float* const to = p.descales + std::int64_t{task.head} * slab.blocks + nth;
      if (!p.finds_amax) {
        descale[half] = *to;
        continue;
      }
      float most = 0.0F;
#pragma unroll
      for (int warp = 0; warp < kWarpgroupWarps; ++warp) {
        most = gpu::max_nan(most, amax[own_half][warp]);
        if (!apart) most = gpu::max_nan(most, amax[own_half ^ 1][warp]);
      }
      descale[half] = M::descale_for(p, most);
      const bool tells = thread() % kWarpgroupThreads == 0 && in_head == nth;
      if (tells && (apart || own_half == 0)) *to = descale[half];
    }
  }

  template <Dtype kTo>
  GPU_FN static void write_codes(const Slab& slab, const Task& task,
                                 const float (&inverse)[kHalves], Rows& rows) {
    const Params& p = slab.tensor;
    std::uint8_t* const codes = p.codes + offset_of_row(p, task.head, task.row(), p.codes_strides);
    const int there = task.rows(slab);
    Rows::for_each_eight([&](int half, int nth, int part) {
      const int row = rows.row(half, nth);
      if (row >= there) return;
      std::uint32_t two[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x[2] = {rows.at(half, nth, part, 2 * i), rows.at(half, nth, part, 2 * i + 1)};
        two[i] = Work::template two_codes<kTo>(x, inverse[half]);
      }
      *reinterpret_cast<uint2*>(codes + row * p.codes_strides.seq + first_column(part)) =
          make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
    });
  }

  GPU_FN void quantise(const Slab& slab, const Task& task) {
    const Params& p = slab.tensor;
    const Tile& tile = own().tiles[slot()];
    if (slab.summed >= 0) make_mean(slab, task);
    Rows rows(first_half());
    gpu::mbarrier_wait(own().full[slot()], turn / kSlots & 1);
    if (p.infinities != nullptr) Work::count(p, rows.infinities(tile));
    if (p.rotate) {
      rows.rotate(tile, shared.matrix);
    } else {
      rows.take(tile);
    }
    if (p.dots != nullptr) write_dots(slab, task, rows);
    if (p.smooth) subtract_mean(slab, task, rows);
    float descale[kHalves];
    find_descales(slab, task, rows, descale);
    float inverse[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      inverse[half] = gpu::divide(1.0F, descale[half]) * factor<kDim>(p);
    }
    switch (p.format) {
      case Dtype::kE4M3: write_codes<Dtype::kE4M3>(slab, task, inverse, rows); break;
      case Dtype::kE5M2: write_codes<Dtype::kE5M2>(slab, task, inverse, rows); break;
      default: write_codes<Dtype::kInt8>(slab, task, inverse, rows);
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
