#include "attention/ladder_limits.hpp"

#include <algorithm>
#include <climits>
#include <string>

namespace fp8_sdpa::attention {
namespace {

constexpr int kHeadDim = 64;

/// Older code than the family's own is a trap.
Status check_code(const LadderFamily& family, const Device& device,
                  const detail::CompiledArchs& archs) {
  if (device.backend != Backend::kDevice) return {};
  if (archs.code_for(device.sm_version) >= family.min_sm_version) return {};
  return unsupported(
      std::string(family.name) + " was not compiled for sm_" + std::to_string(device.sm_version) +
      " (" + device.name + "): this build has device code for " +
      (archs.list.empty() ? "nothing" : std::string(archs.list)) + "; set SDPA_CUDA_ARCHS");
}

Status check_format(const std::string& name, const Problem& problem) {
  if (problem.k.dtype != problem.q.dtype || problem.v.dtype != problem.q.dtype) {
    return unsupported(name + " serves one FP8 format for q, k and v, not " +
                       name_of(problem.q.dtype) + ", " + name_of(problem.k.dtype) + " and " +
                       name_of(problem.v.dtype));
  }
  if (problem.o.dtype == Dtype::kE4M3) {
    return unsupported(name + " serves a half or bf16 o, not " + name_of(problem.o.dtype));
  }
  if (problem.v.stride_dim != 1) {
    return unsupported(name + " serves a row-major v (stride_dim 1), not stride_dim " +
                       std::to_string(problem.v.stride_dim));
  }
  return {};
}

Status check_sizes(const LadderFamily& family, const Problem& problem) {
  const std::string name = family.name;
  const std::int64_t max_seq = INT_MAX - 2 * std::max(family.tile_m, family.tile_n);
  if (problem.seq_q > max_seq || problem.seq_kv > max_seq) {
    return unsupported(name + " serves sequences up to " + std::to_string(max_seq) + ", not " +
                       std::to_string(problem.seq_q) + " and " + std::to_string(problem.seq_kv));
  }
  const std::int64_t blocks =
      (problem.seq_q + family.tile_m - 1) / family.tile_m * problem.batch * problem.heads_q;
  if (blocks > INT_MAX) {
    return unsupported(name + " launches one block per " + std::to_string(family.tile_m) +
                       " query rows and head, at most " + std::to_string(INT_MAX) +
                       " blocks, not " + std::to_string(blocks));
  }
  return {};
}

}  // namespace

Status check_ladder_limits(const LadderFamily& family, const Problem& problem, const Device& device,
                           const detail::CompiledArchs& archs) {
  const std::string name = family.name;
  if (device.backend == Backend::kDevice && device.sm_version < family.min_sm_version) {
    return unsupported(name + " needs sm_" + std::to_string(family.min_sm_version) + " or newer; " +
                       device.name + " is sm_" + std::to_string(device.sm_version));
  }
  if (Status s = check_code(family, device, archs); !s.ok()) return s;
  if (problem.head_dim != kHeadDim) {
    return unsupported(name + " serves head_dim 64, not " + std::to_string(problem.head_dim));
  }
  if (problem.mask != Mask::kNone) {
    return unsupported(name + " serves no mask, not " + name_of(problem.mask));
  }
  if (problem.heads_q != problem.heads_kv) {
    return unsupported(name + " serves heads_q == heads_kv, not " +
                       std::to_string(problem.heads_q) + " and " +
                       std::to_string(problem.heads_kv));
  }
  if (Status s = check_format(name, problem); !s.ok()) return s;
  return check_sizes(family, problem);
}

}  // namespace fp8_sdpa::attention
