// sm80_mma: FlashAttention-2 with S, P and O in registers, on half tensor cores (sm_80 and newer).
//
// The algorithm, its data flow and its barriers are in attention/key_group_kernel.hpp, the operands
// of mma.sync m16n8k16 in attention/half_operands.hpp.
#pragma once

#include "attention/half_operands.hpp"
#include "attention/key_group_kernel.hpp"
#include "sm80/config.hpp"

namespace fp8_sdpa::sm80 {

namespace groups = attention::key_groups;

template <class Tag, Dtype kInput>
struct Kernel {
  using Params = attention::ParamsOf<attention::Logged<Tag>>;
  using Shared = groups::Shared;
  static constexpr int kThreads = groups::kThreads;
  static constexpr int kMinBlocks = groups::kMinBlocks;
  static constexpr bool kUsesPdl = true;

  GPU_FN static void run(const Params& p, Shared& sm) {
    using Operands = attention::HalfOperands<kInput, groups::kHeadDim, groups::kWarpKeys>;
    groups::run_kernel<Operands, attention::Logged<Tag>>(p, sm);
  }
};

}  // namespace fp8_sdpa::sm80
