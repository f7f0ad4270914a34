#include <climits>
#include <string>

#include "stage_c/config.hpp"
#include "stage_c/stage_c.hpp"

namespace fp8_sdpa::stage_c {

Status supports(const Problem& problem, const Device& device) {
  constexpr int kMinSmVersion = 80;
  if (device.backend == Backend::kDevice && device.sm_version < kMinSmVersion) {
    return unsupported("stage_c needs sm_80 or newer; " + device.name + " is sm_" +
                       std::to_string(device.sm_version));
  }
  if (problem.head_dim != kHeadDim) {
    return unsupported("stage_c serves head_dim 64, not " + std::to_string(problem.head_dim));
  }
  if (problem.mask != Mask::kNone) {
    return unsupported(std::string("stage_c serves no mask, not ") + name_of(problem.mask));
  }
  if (problem.heads_q != problem.heads_kv) {
    return unsupported("stage_c serves heads_q == heads_kv, not " +
                       std::to_string(problem.heads_q) + " and " +
                       std::to_string(problem.heads_kv));
  }
  if (problem.k.dtype != problem.q.dtype || problem.v.dtype != problem.q.dtype) {
    return unsupported(std::string("stage_c serves one FP8 format for q, k and v, not ") +
                       name_of(problem.q.dtype) + ", " + name_of(problem.k.dtype) + " and " +
                       name_of(problem.v.dtype));
  }
  if (problem.v.stride_dim != 1) {
    return unsupported("stage_c serves a row-major v (stride_dim 1), not stride_dim " +
                       std::to_string(problem.v.stride_dim));
  }
  constexpr std::int64_t kMaxSeq = INT_MAX - 2 * kTileN;
  if (problem.seq_q > kMaxSeq || problem.seq_kv > kMaxSeq) {
    return unsupported("stage_c serves sequences up to " + std::to_string(kMaxSeq) + ", not " +
                       std::to_string(problem.seq_q) + " and " + std::to_string(problem.seq_kv));
  }
  const std::int64_t blocks =
      (problem.seq_q + kTileM - 1) / kTileM * problem.batch * problem.heads_q;
  if (blocks > INT_MAX) {
    return unsupported("stage_c launches one block per 32 query rows and head, at most " +
                       std::to_string(INT_MAX) + " blocks, not " + std::to_string(blocks));
  }
  return {};
}

}  // namespace fp8_sdpa::stage_c
