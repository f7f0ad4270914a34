// A consumer warpgroup: 64 query rows of a work item against its share of the KV tiles, last tile
// first, so that masked tiles come at the start.
//
// Data flow of a tile, all in registers but Q, K and V^T:
//   S = Q K^T (wgmma, A and B in shared memory) -> mask -> weights, m, l -> P (E4M3)
//   O' = P V (wgmma, A in registers) -> O = O rescale + O'
// The pipelines differ in what runs beside the softmax; i counts this warpgroup's tiles:
//
//   kSerial   QK(i) . softmax(i) . PV(i) .
//   kOverlap  QK(i) PV(i-1) . softmax(i) under PV(i-1) .
//   kDeep     softmax(i) under PV(i-1) and QK(i+1)
#pragma once

#include "sm90/multiply.cuh"
#include "sm90/softmax.cuh"
#include "sm90/work.cuh"

namespace fp8_sdpa::sm90 {

template <class T>
struct Consumer {
  static constexpr Config kConfig = T::kConfig;
  static constexpr int kExtraRegisters = T::kExtraRows / 2;
  /// Accumulators of one P V multiply.
  static constexpr int kFresh = T::kPvColumns / 2 + kExtraRegisters;
  using Scores = float[T::kScoreRegisters];
  using Weights = std::uint32_t[T::kTileN / kDepth][4];
  using Outputs = float[T::kOutputRegisters];
  using Fresh = float[kFresh];

  const Params& p;
  Shared<T>& sm;
  int row_group, key_group;
  Operands<T> operands;
  Ring<T::kStages> key, value;  ///< this warpgroup's next tile, and the one P V is at
  int first_key = 0;            ///< of the tile at `key`
  int left = 0;                 ///< tiles of this item from `key` on
  int unmasked_keys = 0;        ///< keys below this are seen by all of its rows
  Rows rows;
  std::uint32_t queries[kConfig.queries_in_registers ? T::kHeadDim / kDepth : 1][4];

  GPU_FN Consumer(const Params& params, Shared<T>& shared, int group)
      : p(params),
        sm(shared),
        row_group(group % T::kRowGroups),
        key_group(group / T::kRowGroups),
        operands(shared, row_group) {}

  /// O, m and l of this warpgroup's rows over its tiles. The rings end at the next item's tiles.
  GPU_FN void run(const Work& work, Outputs& o) {
    Ring<T::kStages> next = key;
    next.advance(work.tiles);
    begin(work);
#pragma unroll
    for (int i = 0; i < T::kOutputRegisters; ++i) o[i] = 0.0F;
    if (left > 0) {
      if constexpr (kConfig.pipeline == Pipeline::kSerial) {
        serial(o);
      } else if constexpr (kConfig.pipeline == Pipeline::kOverlap) {
        overlap(o);
      } else {
        deep(o);
      }
    }
    key = value = next;
  }

 private:
  GPU_FN static void release(gpu::MBarrier& empty) {
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(empty);
  }
  GPU_FN void wait_keys() { gpu::mbarrier_wait(sm.key_full[key.slot], key.full()); }
  GPU_FN void release_keys() { release(sm.key_empty[key.slot]); }
  GPU_FN void wait_values() { gpu::mbarrier_wait(sm.value_full[value.slot], value.full()); }
  GPU_FN void release_values() { release(sm.value_empty[value.slot]); }
  template <class R>
  GPU_FN static void to_next(R& ring) {
    if constexpr (T::kKeyGroups == 1) {
      ring.next();
    } else {
      ring.advance(T::kKeyGroups);
    }
  }

  /// The place of this warpgroup in the item; tiles that none of its rows sees are passed over.
  GPU_FN void begin(const Work& work) {
    const int lane = gpu::lane_idx();
    const int first_row = work.first_row + row_group * kWarpgroupRows;
    const int row = first_row + gpu::warp_idx() % 4 * 16 + lane / 4;
    const int last = first_row + kWarpgroupRows - 1;
    const int seen = first_row < p.seq_q ? key_limit(p, last < p.seq_q ? last : p.seq_q - 1) : 0;
    unmasked_keys = key_limit(p, first_row);
    rows = Rows{};
    const int query_head = work.batch * p.heads_q + work.head;
    rows.scale = p.descale_q[query_head] *
                 p.descale_k[work.batch * p.heads_kv + work.kv_head] * p.softmax_scale_log2;
    rows.limit[0] = key_limit(p, row) - lane % 4 * 2;
    rows.limit[1] = key_limit(p, row + 8) - lane % 4 * 2;
    key.advance(key_group);
    value = key;
    const int own_tiles = work.tiles - key_group;
    left = own_tiles > 0 ? (own_tiles + T::kKeyGroups - 1) / T::kKeyGroups : 0;
    first_key = (work.tiles - 1 - key_group) * T::kTileN;
    while (left > 0 && first_key >= seen) {
      if constexpr (kConfig.ping_pong) take_turn();
      wait_keys();
      release_keys();
      wait_values();
      release_values();
      if constexpr (kConfig.ping_pong) pass_turn();
      next_keys();
      to_next(value);
    }
  }
  GPU_FN void next_keys() {
    to_next(key);
    first_key -= T::kKeyGroups * T::kTileN;
    --left;
  }

  /// Named barriers 1 and up: the turn of row group i - 1.
  GPU_FN void take_turn() const {
    gpu::named_barrier_sync(1 + row_group, 2 * kWarpgroupThreads);
  }
  GPU_FN void pass_turn() const {
    gpu::named_barrier_arrive(1 + (row_group + 1) % T::kRowGroups, 2 * kWarpgroupThreads);
  }

  GPU_FN void issue_scores(Scores& s) const {
    gpu::pin_registers(s);
    gpu::wgmma_fence();
    if constexpr (kConfig.queries_in_registers) {
      operands.scores(queries, key.slot, s);
    } else {
      operands.scores(key.slot, s);
    }
    gpu::wgmma_commit();
  }
  /// Columns from `column` on, into accumulators of their own or into O.
  template <int kRegisters>
  GPU_FN void issue_outputs(const Weights& weights, int column, float (&o)[kRegisters]) const {
    gpu::pin_registers(o);
    gpu::wgmma_fence();
    operands.outputs(weights, value.slot, column, !kConfig.two_level, o);
    gpu::wgmma_commit();
  }
  GPU_FN void weigh(Scores& s) {
    gpu::pin_registers(s);
    if (first_key + T::kTileN > unmasked_keys) mask_scores(s, first_key, rows);
    softmax<!kConfig.ones_column>(s, rows);
  }
  /// O = O rescale + O' in columns from `column` on.
  GPU_FN void add(Fresh& fresh, const float (&rescale)[2], int column, Outputs& o) {
    gpu::pin_registers(fresh);
#pragma unroll
    for (int i = 0; i < T::kPvColumns / 2; ++i) {
      float& x = o[column / 2 + i];
      x = gpu::fma(x, rescale[i / 2 % 2], fresh[i]);
    }
    if constexpr (kConfig.ones_column) {
      // Column head_dim, of ones, is with the lanes of t = 0; what others add up is not used.
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        rows.sum[h] = gpu::fma(rows.sum[h], rescale[h], fresh[T::kPvColumns / 2 + 2 * h]);
      }
    }
  }
  GPU_FN static void rescale_outputs(const float (&rescale)[2], Outputs& o) {
#pragma unroll
    for (int i = 0; i < T::kOutputRegisters; ++i) o[i] *= rescale[i / 2 % 2];
  }
  /// All of P V of the tile at `value`, waited for.
  GPU_FN void finish_outputs(const Weights& weights, const float (&rescale)[2], int from_column,
                             Outputs& o) {
    if constexpr (kConfig.two_level) {
#pragma unroll
      for (int column = from_column; column < T::kHeadDim; column += T::kPvColumns) {
        Fresh fresh;
        issue_outputs(weights, column, fresh);
        gpu::wgmma_wait<0>();
        add(fresh, rescale, column, o);
      }
    } else {
      issue_outputs(weights, 0, o);
      gpu::wgmma_wait<0>();
      gpu::pin_registers(o);
    }
  }

  GPU_FN void serial(Outputs& o) {
    for (; left > 0; next_keys()) {
      Scores s;
      Weights weights;
      wait_keys();
      issue_scores(s);
      gpu::wgmma_wait<0>();
      release_keys();
      weigh(s);
      pack_weights(s, weights);
      if constexpr (!kConfig.two_level) rescale_outputs(rows.rescale, o);
      wait_values();
      finish_outputs(weights, rows.rescale, 0, o);
      release_values();
      to_next(value);
    }
  }

  GPU_FN void overlap(Outputs& o) {
    Weights weights;
    float rescale[2];
    {
      Scores s;
      if constexpr (kConfig.ping_pong) take_turn();
      wait_keys();
      issue_scores(s);
      if constexpr (kConfig.ping_pong) pass_turn();
      gpu::wgmma_wait<0>();
      release_keys();
      weigh(s);
      pack_weights(s, weights);
      next_keys();
    }
    for (; left > 0; next_keys()) {
      Scores s;
      rescale[0] = rows.rescale[0];
      rescale[1] = rows.rescale[1];
      if constexpr (kConfig.ping_pong) take_turn();
      wait_keys();
      issue_scores(s);
      wait_values();
      if constexpr (kConfig.two_level) {
        Fresh fresh;
        issue_outputs(weights, 0, fresh);
        if constexpr (kConfig.ping_pong) pass_turn();
        gpu::wgmma_wait<1>();
        release_keys();
        weigh(s);
        gpu::wgmma_wait<0>();
        add(fresh, rescale, 0, o);
        finish_outputs(weights, rescale, T::kPvColumns, o);
      } else {
        issue_outputs(weights, 0, o);
        if constexpr (kConfig.ping_pong) pass_turn();
        gpu::wgmma_wait<1>();
        release_keys();
        weigh(s);
        gpu::wgmma_wait<0>();
        gpu::pin_registers(o);
        rescale_outputs(rows.rescale, o);
      }
      release_values();
      to_next(value);
      pack_weights(s, weights);
    }
    wait_values();
    finish_outputs(weights, rows.rescale, 0, o);
    release_values();
  }

  /// One tile whose scores are on their way to s; `next` gets those of the tile after.
  template <bool kHasNext>
  GPU_FN void deep_step(Scores& s, Scores& next, Weights& weights, Fresh& fresh,
                        float (&rescale)[2], bool has_previous, Outputs& o) {
    Ring<T::kStages> own = key;
    const int own_first_key = first_key;
    next_keys();
    if constexpr (kHasNext) {
      wait_keys();
      issue_scores(next);
      gpu::wgmma_wait<2>();
    } else {
      gpu::wgmma_wait<1>();
    }
    release(sm.key_empty[own.slot]);
    gpu::pin_registers(s);
    if (own_first_key + T::kTileN > unmasked_keys) mask_scores(s, own_first_key, rows);
    softmax<!kConfig.ones_column>(s, rows);
    gpu::wgmma_wait<kHasNext ? 1 : 0>();
    add(fresh, rescale, 0, o);
    if (has_previous) {
      release_values();
      to_next(value);
    }
    rescale[0] = rows.rescale[0];
    rescale[1] = rows.rescale[1];
    pack_weights(s, weights);
    wait_values();
    issue_outputs(weights, 0, fresh);
  }

  GPU_FN void deep(Outputs& o) {
    static_assert(kConfig.pipeline != Pipeline::kDeep || (kConfig.two_level && T::kPvChunks == 1));
    Scores even, odd;
    Weights weights;
    Fresh fresh = {};
    float rescale[2] = {0.0F, 0.0F};
    bool has_previous = false;
    wait_keys();
    issue_scores(even);
    gpu::wgmma_commit();  // in the place of the first tile's predecessor
    while (true) {
      if (left == 1) {
        deep_step<false>(even, odd, weights, fresh, rescale, has_previous, o);
        break;
      }
      deep_step<true>(even, odd, weights, fresh, rescale, has_previous, o);
      has_previous = true;
      if (left == 1) {
        deep_step<false>(odd, even, weights, fresh, rescale, has_previous, o);
        break;
      }
      deep_step<true>(odd, even, weights, fresh, rescale, has_previous, o);
    }
    gpu::wgmma_wait<0>();
    add(fresh, rescale, 0, o);
    release_values();
  }
};

}  // namespace fp8_sdpa::sm90
