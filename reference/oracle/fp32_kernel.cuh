// The naive fp32 attention kernel: written to be read, not to be fast.
//
// One block computes one query row, in two plain passes (no online softmax):
//   1. m = max over keys of scale * q . k_j, each thread taking every kThreads-th key;
//   2. tile by tile of kThreads keys: thread t computes p_t = exp(s_t - m) into shared memory, then
//      owns the dims t, t + kThreads, ... and adds p . V of the tile to O in global memory.
// At the end O is divided by the sum of p. Codes are decoded through the table in global memory.
//
// Barriers, all of the whole block: after the scores' partial maxima and p's are written, and again
// before the next write to the same array.
#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/gpu.hpp"
#include "reference/oracle/fp32_reference.hpp"

namespace fp8_sdpa::reference {

/// The backend is a parameter so that the two builds of this text are two types.
template <Backend kBackend>
struct Fp32Kernel {
  using Params = Fp32Params;
  static constexpr int kThreads = 128;
  static constexpr int kMinBlocks = 1;
  struct Shared {
    float values[kThreads];
  };

  /// The query row of a block and the KV head that it reads.
  struct Row {
    std::int64_t index;    ///< in (batch, heads_q, seq_q)
    std::int64_t head;     ///< in (batch, heads_q)
    std::int64_t kv_head;  ///< in (batch, heads_kv)
    std::int64_t keys;     ///< that it sees
  };

  GPU_FN static Row locate(const Params& p) {
    const AttentionSizes& sizes = p.sizes;
    Row row{};
    row.index = static_cast<std::int64_t>(gpu::block_idx().x) +
                static_cast<std::int64_t>(gpu::block_idx().y) * gpu::grid_dim().x;
    row.head = row.index / sizes.seq_q;
    const std::int64_t batch = row.head / sizes.heads_q;
    const std::int64_t group = sizes.heads_q / sizes.heads_kv;
    row.kv_head = batch * sizes.heads_kv + row.head % sizes.heads_q / group;
    const std::int64_t offset = row.index % sizes.seq_q + sizes.seq_kv - sizes.seq_q + 1;
    row.keys = sizes.mask == Mask::kNone ? sizes.seq_kv
               : offset < 0              ? 0
               : offset > sizes.seq_kv   ? sizes.seq_kv
                                         : offset;
    return row;
  }

  /// The scaled score of key j.
  GPU_FN static float score(const Params& p, const Row& row, std::int64_t j) {
    const int head_dim = p.sizes.head_dim;
    const std::uint8_t* q = p.q + row.index * head_dim;
    const std::uint8_t* k = p.k + (row.kv_head * p.sizes.seq_kv + j) * head_dim;
    float sum = 0.0F;
    for (int d = 0; d < head_dim; ++d) sum += p.table[q[d]] * p.table[k[d]];
    return sum * (p.descale_q[row.head] * p.descale_k[row.kv_head] * p.scale);
  }

  /// Every thread gets the largest of the block's values; NaN if any is.
  GPU_FN static float block_max(float value, Shared& shared) {
    shared.values[gpu::thread_idx()] = value;
    gpu::sync_block();
    float max = -INFINITY;
    for (const float other : shared.values) max = gpu::max_nan(max, other);
    gpu::sync_block();
    return max;
  }

  GPU_FN static void run(const Params& p, Shared& shared) {
    const Row row = locate(p);
    const std::int64_t rows =
        static_cast<std::int64_t>(p.sizes.batch) * p.sizes.heads_q * p.sizes.seq_q;
    if (row.index >= rows) return;  // the whole block: the grid's last line may be longer
    const int head_dim = p.sizes.head_dim;
    float* o = p.o + row.index * head_dim;

    float largest = -INFINITY;
    for (std::int64_t j = gpu::thread_idx(); j < row.keys; j += kThreads) {
      largest = gpu::max_nan(largest, score(p, row, j));
    }
    const float max = block_max(largest, shared);

    for (int d = gpu::thread_idx(); d < head_dim; d += kThreads) o[d] = 0.0F;
    float sum = 0.0F;  // every thread sums all of p, in the same order
    for (std::int64_t start = 0; start < row.keys; start += kThreads) {
      const std::int64_t mine = start + gpu::thread_idx();
      shared.values[gpu::thread_idx()] = mine < row.keys ? expf(score(p, row, mine) - max) : 0.0F;
      gpu::sync_block();
      const int count = static_cast<int>(row.keys - start < kThreads ? row.keys - start : kThreads);
      float tile_sum = 0.0F;
      for (int j = 0; j < count; ++j) tile_sum += shared.values[j];
      sum += tile_sum;
      const std::uint8_t* v = p.v + (row.kv_head * p.sizes.seq_kv + start) * head_dim;
      for (int d = gpu::thread_idx(); d < head_dim; d += kThreads) {
        float dot = 0.0F;
        for (int j = 0; j < count; ++j) dot += shared.values[j] * p.table[v[j * head_dim + d]];
        o[d] += dot;
      }
      gpu::sync_block();
    }
    for (int d = gpu::thread_idx(); d < head_dim; d += kThreads) {
      o[d] = row.keys == 0 ? 0.0F : o[d] * p.descale_v[row.kv_head] / sum;
    }
    if (gpu::thread_idx() == 0) p.lse[row.index] = row.keys == 0 ? -INFINITY : max + logf(sum);
  }
};

}  // namespace fp8_sdpa::reference
