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
#include "sm90/two_terms.cuh"
#include "sm90/work.cuh"

namespace fp8_sdpa::sm90 {

template <class T>
struct Consumer {
  static constexpr Config kConfig = T::kConfig;
  /// Accumulators of one P V multiply.
  static constexpr int kFresh = (T::kPvColumns + T::kExtraRows) / 2;
  using Scores = float[T::kScoreRegisters];
  using Weights = std::uint32_t[T::kTileN / kDepth][4];
  using Outputs = float[T::kOutputRegisters];
  using Fresh = float[kFresh];
  /// In place of `unmasked`: scales are negative, so scores change their sign, and every tile takes
  /// the way of masked ones.
  static constexpr int kNegated = -1;

  const Params& p;
  Shared<T>& sm;
  int row_group, key_group;
  Operands<T> operands;
  unsigned position = 0;  ///< in the rings of K and V: of the tile whose scores are next
  int tile = 0;           ///< that tile, in its sequence; negative: none is left
  int unmasked = 0;       ///< tiles below this are seen whole by all of its rows; or kNegated
  int first_row = 0;
  Rows rows;
  std::uint32_t queries[kConfig.queries_in_registers ? T::kHeadDim / kDepth : 1][4];

  GPU_FN Consumer(const Params& params, Shared<T>& shared, int group)
      : p(params),
        sm(shared),
        row_group(group % T::kRowGroups),
        key_group(group / T::kRowGroups),
        operands(shared, row_group) {}

  /// O, m and l of this warpgroup's rows over its tiles; `tiles_before` are those of earlier items.
  GPU_FN void run(const Work& work, unsigned tiles_before, Outputs& o) {
    begin(work, tiles_before);
#pragma unroll
    for (int i = 0; i < T::kOutputRegisters; ++i) o[i] = 0.0F;
    if (tile < 0) return;
    if constexpr (kConfig.two_terms) {
      one_tile(o);
    } else if constexpr (kConfig.pipeline == Pipeline::kSerial) {
      serial(o);
    } else if constexpr (kConfig.pipeline == Pipeline::kOverlap) {
      overlap(o);
    } else {
      deep(o);
    }
  }

 private:
  GPU_FN static void release(gpu::MBarrier& empty) {
    if (gpu::lane_idx() == 0) gpu::mbarrier_arrive(empty);
  }
  /// `at` is a position in the rings.
  GPU_FN void wait_keys(unsigned at) {
    gpu::mbarrier_wait(sm.key_full[slot_of<T::kStages>(at)], full_parity<T::kStages>(at));
  }
  GPU_FN void release_keys(unsigned at) {
    release(sm.key_empty[slot_of<T::kStages>(at)]);
  }
  GPU_FN void wait_values(unsigned at) {
    gpu::mbarrier_wait(sm.value_full[slot_of<T::kStages>(at)], full_parity<T::kStages>(at));
  }
  GPU_FN void release_values(unsigned at) {
    release(sm.value_empty[slot_of<T::kStages>(at)]);
  }
  GPU_FN void next() {
    position += T::kKeyGroups;
    tile -= T::kKeyGroups;
  }

  /// The place of this warpgroup in the item; tiles that none of its rows sees are passed over.
  GPU_FN void begin(const Work& work, unsigned tiles_before) {
    first_row = work.first_row + row_group * kWarpgroupRows;
    const int last = first_row + kWarpgroupRows - 1;
    const int seen = first_row < p.seq_q ? key_limit(p, last < p.seq_q ? last : p.seq_q - 1) : 0;
    unmasked = key_limit(p, first_row) / T::kTileN;
    rows = Rows{};
    const float scale = p.descale_q[work.batch * p.heads_q + work.head] *
                        p.descale_k[work.batch * p.heads_kv + work.kv_head] * p.softmax_scale_log2;
    rows.scale = scale < 0.0F ? -scale : scale;
    if (scale < 0.0F) unmasked = kNegated;
    position = tiles_before + key_group;
    tile = work.tiles - 1 - key_group;
    for (; tile * T::kTileN >= seen && tile >= 0; next()) {
      if constexpr (kConfig.ping_pong) take_turn();
      wait_keys(position);
      wait_values(position);
      // Nothing else keeps lanes together here: one that has not seen these phases would miss them
      // if the loader could go on.
      gpu::sync_warp();
      release_keys(position);
      release_values(position);
      if constexpr (kConfig.ping_pong) pass_turn();
    }
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
      operands.scores(queries, slot_of<T::kStages>(position), s);
    } else {
      operands.scores(slot_of<T::kStages>(position), s);
    }
    gpu::wgmma_commit();
  }
  /// Columns from `column` on, into accumulators of their own or into O.
  template <int kRegisters>
  GPU_FN void issue_outputs(const Weights& weights, unsigned at, int column,
                            float (&o)[kRegisters]) const {
    gpu::pin_registers(o);
    gpu::wgmma_fence();
    operands.outputs(weights, slot_of<T::kStages>(at), column, !kConfig.two_level, o);
    gpu::wgmma_commit();
  }
  /// Masks the scores of tile `at_tile`, which are in s, and takes in their maxima.
  GPU_FN void begin_softmax(Scores& s, int at_tile, float (&rescale)[2]) {
    gpu::pin_registers(s);
    if (at_tile >= unmasked) {
      if (unmasked == kNegated) {
#pragma unroll
        for (float& score : s) score = -score;
      }
      const int lane = gpu::lane_idx();
      const int row = first_row + gpu::warp_idx() % 4 * 16 + lane / 4;
      const int first_key = at_tile * T::kTileN + lane % 4 * 2;
      const int left[2] = {key_limit(p, row) - first_key, key_limit(p, row + 8) - first_key};
      mask_scores(s, left);
    }
    grow_max(s, rows, rescale);
  }
  GPU_FN void end_softmax(Scores& s, Weights& weights) {
    exponentiate<!kConfig.ones_column>(s, rows, weights);
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
      for (int h = 0; h < 2; ++h) rows.sum[h] += fresh[T::kPvColumns / 2 + 2 * h];
    }
  }
  GPU_FN static void rescale_outputs(const float (&rescale)[2], Outputs& o) {
#pragma unroll
    for (int i = 0; i < T::kOutputRegisters; ++i) o[i] *= rescale[i / 2 % 2];
  }
  /// P V of the tile at `at`, columns from `from_column` on, waited for and added.
  GPU_FN void finish_outputs(const Weights& weights, unsigned at, const float (&rescale)[2],
                             int from_column, Outputs& o) {
    if constexpr (kConfig.two_level) {
#pragma unroll
      for (int column = from_column; column < T::kHeadDim; column += T::kPvColumns) {
        Fresh fresh;
        issue_outputs(weights, at, column, fresh);
        gpu::wgmma_wait<0>();
        add(fresh, rescale, column, o);
      }
    } else {
      issue_outputs(weights, at, 0, o);
      gpu::wgmma_wait<0>();
      gpu::pin_registers(o);
    }
  }

  /// Few keys: one tile and no other, P in two terms, the smaller one first.
  GPU_FN void one_tile(Outputs& o) {
    Scores s;
    Weights weights[2];
    float rescale[2];
    wait_keys(position);
    issue_scores(s);
    gpu::wgmma_wait<0>();
    release_keys(position);
    begin_softmax(s, tile, rescale);
    exponentiate_in_two_terms(s, rows, weights[0], weights[1]);
    wait_values(position);
    const int slot = slot_of<T::kStages>(position);
    gpu::pin_registers(o);
    gpu::wgmma_fence();
    operands.outputs(weights[1], slot, 0, false, o);
    operands.outputs(weights[0], slot, 0, true, o);
    gpu::wgmma_commit();
    gpu::wgmma_wait<0>();
    gpu::pin_registers(o);
    release_values(position);
  }

  GPU_FN void serial(Outputs& o) {
    for (; tile >= 0; next()) {
      Scores s;
      Weights weights;
      float rescale[2];
      wait_keys(position);
      issue_scores(s);
      gpu::wgmma_wait<0>();
      release_keys(position);
      begin_softmax(s, tile, rescale);
      end_softmax(s, weights);
      if constexpr (!kConfig.two_level) rescale_outputs(rescale, o);
      wait_values(position);
      finish_outputs(weights, position, rescale, 0, o);
      release_values(position);
    }
  }

  GPU_FN void overlap(Outputs& o) {
    Weights weights;
    float rescale[2];  // of the tile whose weights these are
    {
      Scores s;
      if constexpr (kConfig.ping_pong) take_turn();
      wait_keys(position);
      issue_scores(s);
      if constexpr (kConfig.ping_pong) pass_turn();
      gpu::wgmma_wait<0>();
      release_keys(position);
      begin_softmax(s, tile, rescale);
      end_softmax(s, weights);
      next();
    }
    for (; tile >= 0; next()) {
      Scores s;
      float new_rescale[2];
      const unsigned before = position - T::kKeyGroups;
      if constexpr (kConfig.ping_pong) take_turn();
      wait_keys(position);
      issue_scores(s);
      wait_values(before);
      if constexpr (kConfig.two_level) {
        Fresh fresh;
        issue_outputs(weights, before, 0, fresh);
        if constexpr (kConfig.ping_pong) pass_turn();
        gpu::wgmma_wait<1>();
        release_keys(position);
        begin_softmax(s, tile, new_rescale);
        gpu::wgmma_wait<0>();
        add(fresh, rescale, 0, o);
        finish_outputs(weights, before, rescale, T::kPvColumns, o);
      } else {
        issue_outputs(weights, before, 0, o);
        if constexpr (kConfig.ping_pong) pass_turn();
        gpu::wgmma_wait<1>();
        release_keys(position);
        begin_softmax(s, tile, new_rescale);
        gpu::wgmma_wait<0>();
        gpu::pin_registers(o);
        rescale_outputs(new_rescale, o);
      }
      release_values(before);
      end_softmax(s, weights);
      rescale[0] = new_rescale[0];
      rescale[1] = new_rescale[1];
    }
    wait_values(position - T::kKeyGroups);
    finish_outputs(weights, position - T::kKeyGroups, rescale, 0, o);
    release_values(position - T::kKeyGroups);
  }

  /// The tile before `position`, whose scores are on their way to s, as P V of the one before is to
  /// `fresh`; `next_s` gets the scores of the tile at `position`, if there is one.
  template <bool kHasNext>
  GPU_FN void deep_step(Scores& s, Scores& next_s, Weights& weights, Fresh& fresh,
                        float (&rescale)[2], Outputs& o) {
    const unsigned at = position - T::kKeyGroups;
    float new_rescale[2];
    if constexpr (kHasNext) {
      wait_keys(position);
      issue_scores(next_s);
      gpu::wgmma_wait<2>();
    } else {
      gpu::wgmma_wait<1>();
    }
    release_keys(at);
    begin_softmax(s, tile + T::kKeyGroups, new_rescale);
    gpu::wgmma_wait<kHasNext ? 1 : 0>();
    add(fresh, rescale, 0, o);
    release_values(at - T::kKeyGroups);
    end_softmax(s, weights);
    rescale[0] = new_rescale[0];
    rescale[1] = new_rescale[1];
    wait_values(at);
    issue_outputs(weights, at, 0, fresh);
    next();
  }

  GPU_FN void deep(Outputs& o) {
    static_assert(kConfig.pipeline != Pipeline::kDeep || (kConfig.two_level && T::kPvChunks == 1));
    Scores even, odd;
    Weights weights;
    float rescale[2];
    wait_keys(position);
    issue_scores(even);
    next();
    if (tile >= 0) {
      wait_keys(position);
      issue_scores(odd);
      gpu::wgmma_wait<1>();
    } else {
      gpu::wgmma_wait<0>();
    }
    release_keys(position - T::kKeyGroups);
    begin_softmax(even, tile + T::kKeyGroups, rescale);
    end_softmax(even, weights);
    Fresh fresh;
    wait_values(position - T::kKeyGroups);
    issue_outputs(weights, position - T::kKeyGroups, 0, fresh);
    if (tile >= 0) {
      next();
      while (true) {
        if (tile < 0) {
          deep_step<false>(odd, even, weights, fresh, rescale, o);
          break;
        }
        deep_step<true>(odd, even, weights, fresh, rescale, o);
        if (tile < 0) {
          deep_step<false>(even, odd, weights, fresh, rescale, o);
          break;
        }
        deep_step<true>(even, odd, weights, fresh, rescale, o);
      }
      position -= T::kKeyGroups;
    }
    gpu::wgmma_wait<0>();
    add(fresh, rescale, 0, o);
    release_values(position - T::kKeyGroups);
  }
};

}  // namespace fp8_sdpa::sm90
