// The steps of one KV tile, which the pipelines of a consumer warpgroup (consumer.cuh) order.
// All data is in registers but Q, K and V^T: a step that issues a multiply returns before the
// tensor cores are through, and what it is given belongs to them until it has been waited for.
#pragma once

#include "sm90/compute/multiply.cuh"
#include "sm90/compute/own_rows.cuh"

namespace fp8_sdpa::sm90 {

/// Whether scores of a tile are masked.
enum class Masks : std::uint8_t { kNone, kSome, kMaybe };

/// Accumulators of the P V multiply of columns from kColumn on; the last has that of ones.
template <class T, int kColumn>
inline constexpr int kFreshRegisters =
    (T::kPvColumns + (kColumn + T::kPvColumns == T::kHeadDim ? T::kExtraRows : 0)) / 2;

template <class T>
struct TileSteps : OwnRows<T> {
  using R = OwnRows<T>;
  using R::p, R::sm, R::row_group, R::position, R::tile, R::next;
  using R::rows, R::unmasked, R::set_scale, R::mask;
  using R::wait_keys, R::release_keys, R::wait_values, R::release_values;
  using R::wait_ping_pong, R::signal_ping_pong;
  using Scores = typename R::Scores;
  static constexpr Config kConfig = T::kConfig;
  static constexpr int kExpsInHand = kConfig.exps_in_hand;
  static constexpr std::uint16_t kLinearExp2 = kConfig.linear_exp2;
  /// Whether K of the next tile is waited for while P V of this one runs.
  static constexpr bool kWaitAhead = kConfig.ping_pong || kConfig.mma_row_sums || T::kInt8;
  /// Whether the descriptors of the next Q K^T are computed while P V of this tile runs; with four
  /// warps a scheduler, others fill that gap.
  static constexpr bool kDescribeAhead = kConfig.ping_pong && T::kConsumers < 4;
  using Weights = std::uint32_t[T::kTileN / T::kPvDepth][4];
  /// Scores as the multiply leaves them.
  using RawScores = std::conditional_t<T::kInt8, std::uint32_t, float>[T::kScoreRegisters];
  using Outputs = float[T::kOutputRegisters];
  template <int kColumn>
  using Fresh = float[kFreshRegisters<T, kColumn>];

  Operands<T> operands;
  int query_slot = 0;
  typename Operands<T>::ScoresAt next_scores = {};  ///< with kDescribeAhead

  GPU_FN TileSteps(const Params& params, Shared<T>& shared, int group, int warp_of_group)
      : OwnRows<T>(params, shared, group, warp_of_group), operands(shared, row_group) {}

  GPU_FN typename Operands<T>::ScoresAt describe(unsigned at) const {
    return operands.scores_at(query_slot, slot_of<T::kStages>(at));
  }
  /// Pinned, the words that are no constants: else the compiler computes them where they are used,
  /// and the multiply waits for that.
  GPU_FN void describe_ahead(unsigned at) {
    if constexpr (kDescribeAhead) {
      const auto next = describe(at);
      std::uint32_t low[2] = {static_cast<std::uint32_t>(next.q),
                              static_cast<std::uint32_t>(next.k)};
      gpu::pin_registers(low);
      next_scores = {operands.queries >> 32 << 32 | low[0], operands.keys >> 32 << 32 | low[1]};
    }
  }
  GPU_FN void issue_scores(RawScores& s) const {
    const auto at = kDescribeAhead ? next_scores : describe(position);
    if constexpr (T::kInt8) {
#pragma unroll
      for (std::uint32_t& score : s) score = kInt8Zero;
      gpu::pin_registers(s);
      gpu::wgmma_fence();
      operands.add_scores(at, s);
    } else {
      gpu::forget_registers(s);
      gpu::wgmma_fence();
      operands.scores(at, s);
    }
    gpu::wgmma_commit();
  }
  /// Scores that have been waited for, as floats.
  GPU_FN static void take_scores(RawScores& raw, Scores& s) {
    gpu::pin_registers(raw);
#pragma unroll
    for (int i = 0; i < T::kScoreRegisters; ++i) s[i] = __builtin_bit_cast(float, raw[i]);
  }
  /// Scores of the tile at `position`, its keys released.
  GPU_FN void find_scores(Scores& s) {
    if constexpr (T::kInt8) {
      RawScores raw;
      issue_scores(raw);
      gpu::wgmma_wait<0>();
      take_scores(raw, s);
    } else {
      issue_scores(s);
      gpu::wgmma_wait<0>();
    }
    release_keys(position);
  }
  /// O = O rescale + P V, issued; with Config::int8().
  GPU_FN void issue_outputs(const Weights& weights, unsigned at, const float (&rescale)[2],
                            Outputs& o) const {
#pragma unroll
    for (int i = 0; i < T::kOutputRegisters; ++i) o[i] *= rescale[i / 2 % 2];
    gpu::pin_registers(o);
    gpu::wgmma_fence();
    operands.add_outputs(weights, slot_of<T::kStages>(at), o);
    gpu::wgmma_commit();
  }
  /// Columns from kColumn on, into accumulators of their own: the tensor cores' sums are short
  /// (13 fractional bits), so that sums of many tiles are made in fp32, by add().
  template <int kColumn>
  GPU_FN void issue_outputs(const Weights& weights, unsigned at, Fresh<kColumn>& fresh) const {
    gpu::pin_registers(fresh);
    gpu::wgmma_fence();
    operands.outputs(weights, slot_of<T::kStages>(at), kColumn, false, fresh);
    gpu::wgmma_commit();
  }
  /// Masks the scores of tile `at_tile`, which are in s, if any may be, and takes in their maxima.
  template <Masks kMasks>
  GPU_FN void begin_softmax(Scores& s, int at_tile, float (&rescale)[2]) {
    constexpr bool kIntegers = kConfig.integer_max;
    if constexpr (!T::kInt8) gpu::pin_registers(s);
    const bool masked = kMasks == Masks::kSome || (kMasks == Masks::kMaybe && at_tile >= unmasked);
    // Those of signed bytes are positive: kInt8Zero.
    const bool rare = kIntegers && !T::kInt8 && (masked || any_is_negative(rows));
    if (rarely(masked)) mask(s, at_tile);
    R::recall_scale();
    float top[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = kIntegers ? largest_as_integers(s, h) : largest(s, h);
    if (rarely(rare)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) top[h] = largest(s, h);
    }
    if constexpr (T::kBlockScales) {
      grow_scaled_max(top, rows, rescale);
    } else if constexpr (T::kInt8) {
      grow_max_by_offsets(top, rows, rescale);
    } else {
      grow_max(top, rows, rescale);
    }
    if constexpr (!kConfig.mma_row_sums) {
#pragma unroll
      for (int h = 0; h < 2; ++h) rows.sum[h] *= rescale[h];
    }
  }
  GPU_FN float offset_of_row(int h) const { return weight_offset<T::kBlockScales>(rows, h); }
  /// Scores become weights in s. Pinned, and followed by a wait that ends a basic block: else the
  /// compiler mixes exponentials with what uses them, and each waits.
  GPU_FN void weigh(Scores& s) {
    const float offset[2] = {offset_of_row(0), offset_of_row(1)};
    exponentiate<0, T::kScoreRegisters, kLinearExp2>(s, rows.scale, offset);
    gpu::pin_registers(s);
  }
  /// Scores become operands of P V, in this warpgroup's turn. What uses the exponentials of the
  /// turn fills the gaps between those after it: a warp issues one every 8 clocks.
  GPU_FN void weigh_ping_pong(Scores& s, Weights& weights) {
    float offset[2] = {offset_of_row(0), offset_of_row(1)};
    wait_ping_pong();
    // A load that only the wait before it lets go holds the compiler to the order.
    const float zero = *static_cast<const volatile float*>(&sm.zero);
    offset[0] += zero;
    offset[1] += zero;
    exponentiate<0, kExpsInHand, kLinearExp2>(s, rows.scale, offset);
    if constexpr (kConfig.mma_row_sums) {
      pack<0, kExpsInHand, kLinearExp2>(s, rows.scale, offset, weights);
      std::uint32_t known = 0;
#pragma unroll
      for (int i = 0; i < kExpsInHand / 4; ++i) known |= weights[i / 4][i % 4];
      signal_ping_pong(known);
      exponentiate<kExpsInHand, T::kScoreRegisters, kLinearExp2>(s, rows.scale, offset);
      pack<kExpsInHand, T::kScoreRegisters, kLinearExp2>(s, rows.scale, offset, weights);
    } else {
      WeightSums sums(rows);
      sums.template add<0, kExpsInHand>(s);
      signal_ping_pong(__builtin_bit_cast(std::uint32_t, sums.all()));
      exponentiate<kExpsInHand, T::kScoreRegisters>(s, rows.scale, offset);
      sums.template add<kExpsInHand, T::kScoreRegisters>(s);
      sums.finish(rows);
      pack_all(s, offset, weights);
    }
  }
  GPU_FN void pack_all(const Scores& s, const float (&offset)[2], Weights& weights) const {
    if constexpr (T::kInt8) {
      pack_16_bit<kConfig.formats>(s, weights);
    } else {
      pack<0, T::kScoreRegisters, kLinearExp2>(s, rows.scale, offset, weights);
    }
  }
  GPU_FN void take_weights(Scores& s, Weights& weights) {
    const float offset[2] = {offset_of_row(0), offset_of_row(1)};
    gpu::pin_registers(s);
    if constexpr (!kConfig.mma_row_sums) {
      WeightSums sums(rows);
      sums.template add<0, T::kScoreRegisters>(s);
      sums.finish(rows);
    }
    pack_all(s, offset, weights);
  }
  /// O = O rescale + O' in columns from kColumn on.
  template <int kColumn>
  GPU_FN void add(Fresh<kColumn>& fresh, const float (&rescale)[2], Outputs& o) {
    constexpr int kOwn = T::kPvColumns / 2;
    gpu::pin_registers(fresh);
    if constexpr (kFreshRegisters<T, kColumn> != kOwn) {
      // Column head_dim, of ones, is with the lanes of t = 0; what others add up is not used.
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        rows.sum[h] = gpu::fma(rows.sum[h], rescale[h], fresh[kOwn + 2 * h]);
      }
    }
    float of_output[2] = {rescale[0], rescale[1]};
    if constexpr (T::kBlockScales) {
      const float ratio = R::value_ratio();
      of_output[0] *= ratio;
      of_output[1] *= ratio;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float& x = o[kColumn / 2 + i];
      x = gpu::fma(x, of_output[i / 2 % 2], fresh[i]);
    }
  }
  /// P V of the tile at `at`, waited for and added.
  GPU_FN void finish_outputs(const Weights& weights, unsigned at, const float (&rescale)[2],
                             Outputs& o) {
    if constexpr (T::kInt8) {
      issue_outputs(weights, at, rescale, o);
      describe_ahead(position + T::kKvSplits);
      if constexpr (kConfig.pipeline == Pipeline::kSerial) wait_ahead<0>();
      gpu::wgmma_wait<0>();
      gpu::pin_registers(o);
    } else {
      Fresh<0> fresh;
      Fresh<0> spare;
      gpu::forget_registers(fresh);
      gpu::forget_registers(spare);
      issue_outputs<0>(weights, at, fresh);
      describe_ahead(position + T::kKvSplits);
      finish_chunks<0>(weights, at, rescale, fresh, spare, o);
    }
  }
  /// From the columns on that are in `fresh`, issued already. Chunks that leave room for two are
  /// multiplied while the one before is added. The next chunk takes over the registers of the one
  /// that has been added: the compiler, left to itself, finds others, and spills.
  template <int kColumn>
  GPU_FN void finish_chunks(const Weights& weights, unsigned at, const float (&rescale)[2],
                            Fresh<kColumn>& fresh, Fresh<0>& spare, Outputs& o) {
    constexpr int kNext = kColumn + T::kPvColumns;
    constexpr bool kRoomForTwo = T::kPvColumns <= 64;
    if constexpr (kNext == T::kHeadDim) {
      wait_ahead<kColumn>();
      gpu::wgmma_wait<0>();
      add<kColumn>(fresh, rescale, o);
    } else {
      Fresh<kNext> next;
      if constexpr (kRoomForTwo) {
        take_over(spare, next);
        issue_outputs<kNext>(weights, at, next);
        wait_ahead<kColumn>();
        gpu::wgmma_wait<1>();
        add<kColumn>(fresh, rescale, o);
      } else {
        wait_ahead<kColumn>();
        gpu::wgmma_wait<0>();
        add<kColumn>(fresh, rescale, o);
        take_over(fresh, next);
        issue_outputs<kNext>(weights, at, next);
      }
      finish_chunks<kNext>(weights, at, rescale, next, fresh, o);
    }
  }
  /// K of the next tile is waited for while the first chunk is multiplied, where registers allow
  /// it.
  template <int kColumn>
  GPU_FN void wait_ahead() {
    if constexpr (kWaitAhead && kColumn == 0) {
      if (tile >= T::kKvSplits) wait_keys(position + T::kKvSplits);
    }
  }
  template <int kFrom, int kTo>
  GPU_FN static void take_over(const float (&from)[kFrom], float (&to)[kTo]) {
    gpu::forget_registers(to);
#pragma unroll
    for (int i = 0; i < (kFrom < kTo ? kFrom : kTo); ++i) to[i] = from[i];
  }
};

}  // namespace fp8_sdpa::sm90
