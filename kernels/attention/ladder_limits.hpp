// What the kernels of the ladder serve: the limits that they have in common.
#pragma once

#include "dispatch/compiled_archs.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::attention {

/// A family as its limits and its messages need it.
struct LadderFamily {
  const char* name;
  int min_sm_version;
  int tile_m;  ///< query rows per block
  int tile_n;  ///< keys per step
};

/// head_dim 64, no mask, heads_q == heads_kv, one FP8 format for Q, K and V, row-major V, sequences
/// and blocks that an int counts; on a device, one that `archs` has code of the family for.
/// kUnsupported with the reason, or success.
Status check_ladder_limits(const LadderFamily& family, const Problem& problem, const Device& device,
                           const detail::CompiledArchs& archs = detail::compiled_archs());

}  // namespace fp8_sdpa::attention
