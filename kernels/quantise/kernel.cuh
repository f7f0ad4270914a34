// The quantiser: all passes over all heads in one launch, each tile loaded from memory once.
//
// A scale needs the whole head. So that a tile is still in the L2 cache when its scale is known,
// the work is ordered: tiles of head h for one pass, then tiles of head h - lag for the next, and
// so on. Blocks take work from a ticket, in order. Whoever waits for a head's scale holds a later
// ticket than every tile of the pass that makes it, and those wait for nobody with a later ticket:
// however few blocks run at a time, one of them goes on.
//
//   pass   | of a tile                                    | of a head, by who comes last
//   -------|----------------------------------------------|-----------------------------
//   kMean  | column sums                                  | the mean, rotated
//   kAmax  | largest finite magnitude (less the mean)     |
//   kCodes | x (less the mean) times 1 / descale, in FP8  |
//
// Partial sums are added in the order of the tiles, whoever comes last: the same bits each time.
#pragma once

#include <cmath>
#include <cstdint>

#include "quantise/rows.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct Kernel {
  using Params = quantiser::Params;
  static constexpr int kRows = rows_of_lane(kFrom, kDim);
  static constexpr int kTileRows = tile_rows(kFrom, kDim);
  static constexpr int kThreads = kWarps * gpu::kWarpSize;
  static constexpr int kMinBlocks = (kDim == 256 ? 2 : 3) - (kFrom == Dtype::kFloat ? 1 : 0);
  static constexpr int kMinSmVersion = quantiser::kMinSmVersion;
  using Source = quantiser::Source<kFrom, kDim>;
  using Element = typename Source::Element;
  /// For sums over columns: elements of 16 bytes, and rows that the block has at a time.
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kSumRows = kThreads * kVector / kDim;

  struct Shared {
    SignMasks<kDim> signs;
    float sums[kSumRows][kDim];
    float amax[2][kWarps];  ///< of a task and the next
    std::uint32_t tickets[2];
    bool last;
  };

  /// A tile to be put through a pass.
  struct Task {
    int pass;  ///< of Params::passes
    int head;  ///< of all batches
    int tile;

    GPU_FN std::int64_t place(const Params& p) const {
      return std::int64_t{pass} * p.all_heads + head;
    }
    GPU_FN std::int64_t nth_tile(const Params& p) const {
      return std::int64_t{head} * p.tiles + tile;
    }
    GPU_FN int warp_row() const { return tile * kTileRows + 8 * kRows * gpu::warp_idx(); }
  };

  template <class T>
  GPU_FN static T* head_of(T* data, const Strides& strides, const Params& p, int head) {
    return data + head / p.heads * strides.batch + head % p.heads * strides.head;
  }

  /// Until all tiles of the head have been through the pass before, and its mean is there.
  GPU_FN static void wait_for_pass_before(const Params& p, const Task& task) {
    if (is_first_thread()) {
      const bool makes_mean = p.passes[task.pass - 1] == Pass::kMean;
      gpu::wait_for_word(&p.tiles_done[task.place(p) - p.all_heads],
                         static_cast<std::uint32_t>(p.tiles) + (makes_mean ? 1U : 0U));
    }
    gpu::sync_block();
  }

  GPU_FN static bool is_first_thread() { return gpu::thread_idx() == 0; }
  GPU_FN static bool is_finite(float x) { return std::fabs(x) < INFINITY; }

  GPU_FN static void subtract_mean(const Params& p, const Task& task, Rows<kDim, kRows>& rows) {
    const float* const mean = p.mean + std::int64_t{task.head} * kDim;
#pragma unroll
    for (int part = 0; part < kParts<kDim>; ++part) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const float m = mean[first_column(part) + c];
        for (auto& row : rows.x) row[part][c] -= m;
      }
    }
  }

  /// Sums of the tile's columns, not rotated: the mean is rotated once. NaN and infinities count as
  /// 0.
  GPU_FN static void add_up(const Params& p, const Task& task, Shared& shared) {
    constexpr int kLanes = kDim / kVector;
    const int thread = gpu::thread_idx();
    const auto* const head =
        head_of(static_cast<const Element*>(p.from), p.from_strides, p, task.head);
    const int first = task.tile * kTileRows + thread / kLanes;
    const auto add = [](float& sum, float x) { sum += is_finite(x) ? x : 0.0F; };
    float sums[kVector] = {};
#pragma unroll
    for (int row = 0; row < kTileRows; row += kSumRows) {
      uint4 vector = {};
      if (first + row < p.seq) {
        vector = *reinterpret_cast<const uint4*>(head + (first + row) * p.from_strides.seq +
                                                 thread % kLanes * kVector);
      }
      const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kFrom == Dtype::kFloat) {
          float x;
          memcpy(&x, &words[i], sizeof x);
          add(sums[i], x);
        } else {
          const float2 two = two_values<kFrom>(words[i]);
          add(sums[2 * i], two.x);
          add(sums[2 * i + 1], two.y);
        }
      }
    }
    for (int i = 0; i < kVector; ++i) {
      shared.sums[thread / kLanes][thread % kLanes * kVector + i] = sums[i];
    }
    gpu::sync_block();
    if (thread < kDim) {
      float sum = 0.0F;
#pragma unroll
      for (int row = 0; row < kSumRows; ++row) sum += shared.sums[row][thread];
      p.tile_sums[task.nth_tile(p) * kDim + thread] = sum;
    }
    gpu::sync_block();
    if (is_first_thread()) {
      const std::uint32_t before = gpu::atomic_add_acq_rel(&p.tiles_done[task.place(p)], 1);
      shared.last = before + 1 == static_cast<std::uint32_t>(p.tiles);
    }
    gpu::sync_block();
    if (shared.last) finish_mean(p, task, shared);
  }

  /// From the sums of all tiles, always in the same order.
  GPU_FN static void finish_mean(const Params& p, const Task& task, Shared& shared) {
    constexpr int kShares = kThreads / kDim;
    const int column = gpu::thread_idx() % kDim;
    const int share = gpu::thread_idx() / kDim;
    const float* const sums = p.tile_sums + std::int64_t{task.head} * p.tiles * kDim + column;
    float sum = 0.0F;
#pragma unroll 8
    for (int tile = share; tile < p.tiles; tile += kShares) sum += sums[std::int64_t{tile} * kDim];
    shared.sums[share][column] = sum;
    gpu::sync_block();
    float mean = 0.0F;
    for (int i = 0; i < kShares; ++i) mean += shared.sums[i][column];
    mean = gpu::divide(mean, static_cast<float>(p.seq));
    if (p.rotate) {
      gpu::sync_block();
      if (share == 0) shared.sums[0][column] = flips(p, column) ? -mean : mean;
      gpu::sync_block();
      mean = 0.0F;
      for (int from = 0; from < kDim; ++from) {
        const float x = shared.sums[0][from];
        mean += is_odd(static_cast<unsigned>(from & column)) ? -x : x;
      }
      mean *= kHadamardFactor<kDim>;
    }
    if (share == 0) p.mean[std::int64_t{task.head} * kDim + column] = mean;
    gpu::sync_block();
    if (is_first_thread()) gpu::atomic_add_release(&p.tiles_done[task.place(p)], 1);
  }

  /// The largest magnitude of a warp's rows; where all are finite, or else of those that are.
  template <bool kAllFinite>
  GPU_FN static float amax_of(const Params& p, const Task& task, const Rows<kDim, kRows>& rows) {
    float amax = 0.0F;
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
      if (task.warp_row() + row_in_warp(nth) >= p.seq) continue;
#pragma unroll
      for (const auto& part : rows.x[nth]) {
#pragma unroll
        for (const float x : part) {
          const float magnitude = std::fabs(x);
          amax = gpu::max_nan(amax, kAllFinite || is_finite(x) ? magnitude : 0.0F);
        }
      }
    }
#pragma unroll
    for (int mask = gpu::kWarpSize / 2; mask > 0; mask /= 2) {
      amax = gpu::max_nan(amax, gpu::shfl_xor(amax, mask));
    }
    return amax;
  }

  GPU_FN static void find_amax(const Params& p, const Task& task, const Rows<kDim, kRows>& rows,
                               float* of_warps) {
    float amax = amax_of<true>(p, task, rows);
    if (!is_finite(amax)) amax = amax_of<false>(p, task, rows);
    if (gpu::lane_idx() == 0) of_warps[gpu::warp_idx()] = amax;
  }

  /// By one thread, once all warps have found theirs: atomics of many at one address would take
  /// longer than the loads.
  GPU_FN static void tell_amax(const Params& p, const Task& task, const float* of_warps) {
    float amax = 0.0F;
    for (int warp = 0; warp < kWarps; ++warp) amax = gpu::max_nan(amax, of_warps[warp]);
    std::uint32_t bits;
    memcpy(&bits, &amax, sizeof bits);
    gpu::atomic_max_relaxed(&p.amax[task.head], bits);
    gpu::atomic_add_release(&p.tiles_done[task.place(p)], 1);
  }

  /// The caller's, or from the amax of the pass before: one of the head's tiles writes it down.
  GPU_FN static float descale_of(const Params& p, const Task& task) {
    if (task.pass == 0 || p.passes[task.pass - 1] != Pass::kAmax) return p.descales[task.head];
    float amax;
    memcpy(&amax, &p.amax[task.head], sizeof amax);
    const float quotient = gpu::divide(amax, p.e5m2 ? 57344.0F : 448.0F);
    const float descale = quotient < kLeastDescale ? 1.0F : quotient;
    if (task.tile == 0 && is_first_thread()) p.descales[task.head] = descale;
    return descale;
  }

  template <bool kE5M2>
  GPU_FN static void write_codes(const Params& p, const Task& task, const Rows<kDim, kRows>& rows) {
    const float inverse = gpu::divide(1.0F, descale_of(p, task));
    const auto two_codes = [inverse](const float* x) -> std::uint32_t {
      return kE5M2 ? gpu::float2_to_e5m2x2(x[0] * inverse, x[1] * inverse)
                   : gpu::float2_to_e4m3x2(x[0] * inverse, x[1] * inverse);
    };
    std::uint8_t* const head = head_of(p.codes, p.codes_strides, p, task.head);
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
      const int row = task.warp_row() + row_in_warp(nth);
      if (row >= p.seq) continue;
      std::uint8_t* const to = head + row * p.codes_strides.seq;
#pragma unroll
      for (int part = 0; part < kParts<kDim>; ++part) {
        const float(&x)[8] = rows.x[nth][part];
        *reinterpret_cast<uint2*>(to + first_column(part)) = make_uint2(
            two_codes(x) | two_codes(x + 2) << 16, two_codes(x + 4) | two_codes(x + 6) << 16);
      }
    }
  }

  /// The dot product of each row with its group's vector: of a lane's columns, then of the quad.
  GPU_FN static void write_dots(const Params& p, const Task& task, const Rows<kDim, kRows>& rows) {
    const float* const with = p.dot_with + std::int64_t{task.head / p.dot_group} * kDim;
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
#pragma unroll
    for (int nth = 0; nth < kRows; ++nth) {
      sum[nth] += gpu::shfl_xor(sum[nth], 1);
      sum[nth] += gpu::shfl_xor(sum[nth], 2);
      const int row = task.warp_row() + row_in_warp(nth);
      if (gpu::lane_idx() % 4 == 0 && row < p.seq) {
        p.dots[std::int64_t{task.head} * p.seq + row] = sum[nth];
      }
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

  /// Puts a tile through a pass. Its rows are asked for before anything is waited for.
  GPU_FN static void do_task(const Params& p, const Task& task, int turn, Shared& shared) {
    const Pass pass = p.passes[task.pass];
    if (pass == Pass::kMean) {
      add_up(p, task, shared);
      return;
    }
    Source source;
    source.load_rows(p, head_of(static_cast<const Element*>(p.from), p.from_strides, p, task.head),
                     task.warp_row());
    if (task.pass > 0) wait_for_pass_before(p, task);
    if (pass == Pass::kCodes && p.infinities != nullptr) count(p, source.infinities());
    Rows<kDim, kRows> rows;
    if (p.rotate) {
      source.rotated(shared.signs, rows);
    } else {
      source.values(rows);
    }
    if (pass == Pass::kCodes && p.dots != nullptr) write_dots(p, task, rows);
    if (p.smooth) subtract_mean(p, task, rows);
    if (pass == Pass::kAmax) {
      find_amax(p, task, rows, shared.amax[turn]);
    } else if (p.e5m2) {
      write_codes<true>(p, task, rows);
    } else {
      write_codes<false>(p, task, rows);
    }
  }

  GPU_FN static void run(const Params& p, Shared& shared) {
    const auto a_step = static_cast<std::uint32_t>(p.pass_count * p.tiles);
    const int steps = p.all_heads + (p.pass_count - 1) * p.lag;
    shared.signs.fill(p);
    if (is_first_thread()) shared.tickets[0] = gpu::atomic_add_relaxed(p.ticket, 1);
    gpu::sync_block();
    for (int turn = 0;; turn ^= 1) {
      const std::uint32_t ticket = shared.tickets[turn];
      const auto step = static_cast<int>(ticket / a_step);
      const auto in_step = static_cast<int>(ticket % a_step);
      if (step >= steps) return;
      // The next one, which is there when this one is done.
      std::uint32_t next = 0;
      if (is_first_thread()) next = gpu::atomic_add_relaxed(p.ticket, 1);
      const int pass =
          static_cast<int>(in_step >= p.tiles) + static_cast<int>(in_step >= 2 * p.tiles);
      const Task task{pass, step - pass * p.lag, in_step - pass * p.tiles};
      const bool is_there = task.head >= 0 && task.head < p.all_heads;
      if (is_there) do_task(p, task, turn, shared);
      if (is_first_thread()) shared.tickets[turn ^ 1] = next;
      gpu::sync_block();
      if (is_first_thread() && is_there && p.passes[pass] == Pass::kAmax) {
        tell_amax(p, task, shared.amax[turn]);
      }
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser
