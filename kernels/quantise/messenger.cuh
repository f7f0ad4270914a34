// The two warps of a block that talk to the other blocks: the messenger, and the one that makes
// means of sums.
#pragma once

#include <cstdint>
#include <cstring>

#include "quantise/block.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct Messenger {
  using B = Block<kFrom, kDim>;
  using Board = typename B::Board;
  using Columns = typename B::Columns;
  using Cursor = typename B::Cursor;
  using Findings = typename B::Findings;
  using Row = typename B::Row;
  using Shared = typename B::Shared;
  using Task = typename B::Task;
  static constexpr int kColumns = B::kColumns;
  static constexpr int kBoards = B::kBoards;
  static constexpr std::uint32_t kTold = 0x80000000U;  ///< with the bits of an amax

  /// Copies a head's mean, once it is there, in the measure of rows.
  GPU_FN static void learn_mean(const Params& p, const Task& task, Row& to) {
    if (!p.smooth || task.rows == 0) return;
    gpu::wait_for_word(&p.groups_summed[task.head], static_cast<std::uint32_t>(p.groups) + 1);
    const int first = gpu::lane_idx() * kColumns;
    const float* const mean = p.mean + std::int64_t{task.head} * kDim + first;
    const float measure = p.rotate ? 1.0F / kHadamardFactor<kDim> : 1.0F;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) to.x[first + i] = mean[i] * measure;
  }

  /// From what all tiles of the head have told.
  GPU_FN static float descale_of(const Params& p, int head) {
    const std::uint32_t* const words = p.amax + std::int64_t{head} * p.tiles;
    std::uint32_t most = 0;
    constexpr int kAtOnce = 4;
    for (int tile = gpu::lane_idx(); tile < p.tiles; tile += kAtOnce * gpu::kWarpSize) {
      std::uint32_t four[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int nth = tile + i * gpu::kWarpSize;
        four[i] = nth < p.tiles ? gpu::load_relaxed(words + nth) : kTold;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (four[i] == 0) four[i] = gpu::wait_while_zero(words + tile + i * gpu::kWarpSize);
        most = most > four[i] ? most : four[i];
      }
    }
#pragma unroll
    for (int mask = gpu::kWarpSize / 2; mask > 0; mask /= 2) {
      const std::uint32_t other = gpu::shfl_xor(most, mask);
      most = most > other ? most : other;
    }
    most &= ~kTold;
    float amax;
    memcpy(&amax, &most, sizeof amax);
    return descale_for(p, amax);
  }
  /// Of rows that are short of the rotation's factor.
  GPU_FN static float descale_for(const Params& p, float amax) {
    const float quotient = gpu::divide(amax * factor<kDim>(p), p.largest);
    return quotient < kLeastDescale ? 1.0F : quotient;
  }

  /// The head whose descale the messenger knows.
  struct Known {
    int head = -1;
    float descale = 1.0F;
  };

  /// All that the board of a step says but its tasks.
  GPU_FN static void learn(const Params& p, Known& known, Board& board) {
    const Task& written = board.written();
    if (written.rows > 0) {
      if (written.head != known.head) {
        known.head = written.head;
        known.descale = p.finds_amax ? descale_of(p, known.head) : p.descales[known.head];
      }
      if (gpu::lane_idx() == 0) {
        board.inverse = gpu::divide(1.0F, known.descale) * factor<kDim>(p);
        if (p.finds_amax && written.tile == 0) p.descales[known.head] = known.descale;
      }
      learn_mean(p, written, board.mean_for_codes);
    }
    if (p.finds_amax) learn_mean(p, board.found(), board.mean_for_amax);
  }

  /// What the block has found in a step.
  GPU_FN static void tell(const Params& p, const Board& board, const Findings& findings) {
    if (p.finds_amax && board.found().rows > 0 && gpu::lane_idx() == 0) {
      float amax = 0.0F;
#pragma unroll
      for (const float of_warp : findings.amax) amax = gpu::max_nan(amax, of_warp);
      std::uint32_t bits;
      memcpy(&bits, &amax, sizeof bits);
      gpu::store_relaxed(&p.amax[board.found().nth(p)], bits | kTold);
    }
    const Task& summed = board.summed();
    if (!p.smooth || summed.rows == 0) return;
    Columns sums{};
    add_rows(findings.sums[0].x, B::kSums, sums);
    columns_of(p.tile_sums + summed.nth(p) * kDim) = sums;
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) {
      const int group = summed.head * p.groups + summed.tile / kGroup;
      gpu::atomic_add_release(&p.tiles_summed[group], 1);
    }
  }

  GPU_FN static void exchange(const Params& p, Shared& shared) {
    // Each of four lanes goes through the tiles for one of a board's tasks.
    const int lane = gpu::lane_idx();
    const int earlier = lane == 0 ? kAhead : lane == 2 ? -p.lag : lane == 3 ? p.lead : 0;
    Cursor cursor(p);
    Known known;
    const int end = B::end_step(p);
    for (int step = 0; step < end + 2; ++step) {
      const Task task = cursor.next(p, step + B::first_found(p) + earlier);
      if (step >= 2) {
        const int before = (step - 2) % kBoards;
        gpu::mbarrier_wait(shared.found[before], B::parity(step - 2));
        tell(p, shared.boards[before], shared.findings[step % 2]);
      }
      if (step >= end) continue;
      // All warps that compute are past the step that this board was of.
      Board& board = shared.boards[step % kBoards];
      if (lane < 4) board.tasks[lane] = task;
      gpu::sync_warp();
      learn(p, known, board);
      gpu::mbarrier_arrive(shared.said[step % kBoards]);
    }
  }

  GPU_FN static Columns& columns_of(float* row) {
    return *reinterpret_cast<Columns*>(row + gpu::lane_idx() * kColumns);
  }
  /// Adds rows of kDim, one after the other.
  GPU_FN static void add_rows(const float* rows, int count, Columns& sums) {
    for (int begin = 0; begin < count; begin += kGroup) {
      Columns of_group[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        of_group[i] = Columns{};
        if (begin + i < count) {
          of_group[i] = *reinterpret_cast<const Columns*>(rows + std::int64_t{begin + i} * kDim +
                                                          gpu::lane_idx() * kColumns);
        }
      }
#pragma unroll
      for (const Columns& columns : of_group) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) sums.x[i] += columns.x[i];
      }
    }
  }

  /// The sums of a group of tiles.
  GPU_FN static void add_group(const Params& p, int group) {
    const int head = group / p.groups;
    const int first = group % p.groups * kGroup;
    const int tiles = p.tiles - first < kGroup ? p.tiles - first : kGroup;
    gpu::wait_for_word(&p.tiles_summed[group], static_cast<std::uint32_t>(tiles));
    Columns sums{};
    add_rows(p.tile_sums + (std::int64_t{head} * p.tiles + first) * kDim, tiles, sums);
    columns_of(p.group_sums + std::int64_t{group} * kDim) = sums;
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) gpu::atomic_add_release(&p.groups_summed[head], 1);
  }

  /// The mean of a head, from the sums of its groups.
  GPU_FN static void make_mean(const Params& p, int head) {
    gpu::wait_for_word(&p.groups_summed[head], static_cast<std::uint32_t>(p.groups));
    Columns mean{};
    add_rows(p.group_sums + std::int64_t{head} * p.groups * kDim, p.groups, mean);
#pragma unroll
    for (float& m : mean.x) m = gpu::divide(m, static_cast<float>(p.seq));
    if (p.rotate) rotate_row(p, mean.x);
    float* const to = p.mean + std::int64_t{head} * kDim + gpu::lane_idx() * kColumns;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) to[i] = mean.x[i];
    gpu::sync_warp();
    if (gpu::lane_idx() == 0) gpu::atomic_add_release(&p.groups_summed[head], 1);
  }

  /// The block's share of groups and heads. Groups of a head come before the head: nobody waits
  /// for a warp that waits for a later head.
  GPU_FN static void make_means(const Params& p) {
    if (!p.smooth) return;
    const auto blocks = static_cast<int>(gpu::grid_dim().x);
    const int all_groups = p.all_heads * p.groups;
    int group = static_cast<int>(gpu::block_idx().x);
    for (int head = group; head < p.all_heads || group < all_groups;) {
      if (group < all_groups && group / p.groups <= head) {
        add_group(p, group);
        group += blocks;
      } else {
        make_mean(p, head);
        head += blocks;
      }
    }
  }

  /// The rotation of a row of which each lane has kColumns columns.
  GPU_FN static void rotate_row(const Params& p, float (&x)[kColumns]) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (flips(p, gpu::lane_idx() * kColumns + i)) x[i] = -x[i];
    }
#pragma unroll
    for (int bit = 1; bit < kColumns; bit *= 2) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if ((i & bit) != 0) continue;
        const float sum = x[i] + x[i | bit];
        x[i | bit] = x[i] - x[i | bit];
        x[i] = sum;
      }
    }
#pragma unroll
    for (int bit = 1; bit < gpu::kWarpSize; bit *= 2) {
      const bool upper = (gpu::lane_idx() & bit) != 0;
#pragma unroll
      for (float& value : x) {
        const float other = gpu::shfl_xor(value, bit);
        value = upper ? other - value : value + other;
      }
    }
#pragma unroll
    for (float& value : x) value *= kHadamardFactor<kDim>;
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
