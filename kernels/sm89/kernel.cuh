// sm89_mma: FlashAttention-2 with S, P and O in registers, on FP8 tensor cores (sm_89 and newer).
//
// The algorithm, its data flow and its barriers are in attention/key_group_kernel.hpp, the operands
// of mma.sync m16n8k32 in sm89/operands.cuh. P is rounded to E4M3;
// where keys are so few that the errors do not average out, it is the sum of two E4M3 numbers.
#pragma once

#include "attention/key_group_kernel.hpp"
#include "sm89/config.hpp"
#include "sm89/operands.cuh"

namespace fp8_sdpa::sm89 {

template <class Tag, Dtype kInput, int kTerms>
struct Kernel {
  using Params = attention::ParamsOf<attention::Logged<Tag>>;
  using Shared = groups::Shared;
  static constexpr int kThreads = groups::kThreads;
  static constexpr int kMinBlocks = groups::kMinBlocks;
  static constexpr bool kUsesPdl = true;
  static constexpr int kMinSmVersion = sm89::kMinSmVersion;

  GPU_FN static void run(const Params& p, Shared& sm) {
    groups::run_kernel<Fp8Operands<kInput, kTerms>, attention::Logged<Tag>>(p, sm);
  }
};

}  // namespace fp8_sdpa::sm89
