// The kernel that the families sm80 and sm89 share; they differ in their operands.
//
// One block computes 32 query rows of one (batch, head) over all keys; FlashAttention-2, Algorithm
// 1, per warp, and flash-decoding's merge over the block's four key groups (key_groups.hpp):
//
//   Q <- operands of the warp's 16 rows                      registers, once
//   O <- 0, m <- -inf, l <- 0                                registers
//   for each step, 32 keys of the warp's key group:
//     wait for K, V of the step; start the copies of the step after the next
//     S <- Q K^T                                             (16, 32) fp32 accumulators
//     S <- -inf past seq_kv
//     m' <- max(m, rowmax S);  P <- exp2((S - m') * scale);  a <- exp2((m - m') * scale)
//     l <- a l + rowsum P;  m <- m'
//     O <- a O + P V                                         (16, 64) fp32 accumulators
//   merge the key groups through shared memory; O, LSE out
//
// Data: global FP8 -> cp.async -> FP8 in shared memory -> ldmatrix -> operands -> S, P, O in
// registers -> shared memory (merge, once) -> global.
//
// barrier        | who                | all arrive when                  | and may then
// ---------------|--------------------|----------------------------------|-----------------------
// 1 + key_group  | 2 warps, each step | own copies of the step landed;   | read the step's stage;
//                |                    | own work on the last one is done | overwrite the last one's
// stages_free    | block, once        | own steps are done               | write partials
// partials_ready | block, once        | own O, m, l are written          | read all partials
//
// Rows past seq_q compute on zeros and are not stored. NaN in an attended code reaches the row's
// output: S, m, l and O carry it, and no max or clamp hides it.
#pragma once

#include "attention/key_groups.hpp"
#include "attention/merge_groups.hpp"
#include "attention/phase_log.hpp"
#include "attention/register_softmax.hpp"

namespace fp8_sdpa::attention::key_groups {

/// Operands has kLog2Scale (weights are scaled by 2^kLog2Scale), Queries (registers, explicit from
/// QueryCodes), and two functions, as sm80's and sm89's:
///   scores(queries, k, s): s += Q K^T, fp32 accumulators of 16 x 32;
///   accumulate(s, v, rescale, o): o = rescale o + P V, 16 x 64, o's tiles by even and odd dims.
template <class Operands, bool kLogged>
GPU_FN void run_kernel(const ParamsOf<kLogged>& p, Shared& sm) {
  constexpr int kLog2Scale = Operands::kLog2Scale;
  gpu::pdl_wait();
  gpu::pdl_launch_dependents();
  PhaseLog<kLogged, kThreads / gpu::kWarpSize> log(p);
  log.mark(Phase::kKvPrefetch);
  const Block block = locate<kTileM>(p);
  const WarpPlace place = WarpPlace::of_this_warp();
  KvRing ring(p, block, sm, place);
  log.mark(Phase::kQLoad);
  const ScoreScale scale(block.score_scale);
  const typename Operands::Queries q(load_queries(p, block, place, scale));
  LaneRows rows;
  float o[kTilesO][4] = {};

#pragma unroll 1
  for (int step = 0; step < ring.steps(); ++step) {
    log.mark(Phase::kWait, step);
    const KvStage& kv = ring.wait(step);
    if (!ring.has_keys(step)) break;
    log.mark(Phase::kQk, step);
    float s[kTilesS][4] = {};
    Operands::scores(q, kv.k, s);
    if (const int left = p.seq_kv - place.first_key(step); left < kWarpKeys) mask_columns(s, left);
    log.mark(Phase::kSoftmax, step);
    float rescale[2];
    softmax_step<kLog2Scale>(s, scale.factor, rows, rescale);
    log.mark(Phase::kPv, step);
    Operands::accumulate(s, kv.v, rescale, o);
  }

  log.mark(Phase::kWait);
  gpu::sync_block();  // stages_free
  log.mark(Phase::kStoreO);
  write_partials(sm.partials, place, o, rows, scale.factor);
  gpu::sync_block();  // partials_ready
  merge_and_store<kLog2Scale>(p, block, sm.partials);
  log.mark(Phase::kEnd);
}

}  // namespace fp8_sdpa::attention::key_groups
