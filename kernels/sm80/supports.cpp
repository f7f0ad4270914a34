#include "attention/key_groups.hpp"
#include "attention/ladder_limits.hpp"
#include "sm80/config.hpp"
#include "sm80/sm80.hpp"

namespace fp8_sdpa::sm80 {

Status supports(const Problem& problem, const Device& device) {
  constexpr attention::LadderFamily kFamily{.name = "sm80_mma",
                                            .min_sm_version = kMinSmVersion,
                                            .tile_m = attention::key_groups::kTileM,
                                            .tile_n = attention::key_groups::kTileN};
  return attention::check_ladder_limits(kFamily, problem, device);
}

// Measured on an H200 in a CUDA graph, (B, H, S, D) in microseconds: (1, 1, 32, 64) 2.6,
// (1, 8, 512, 64) 5.9, (1, 8, 2048, 64) 44. One block is slower alone than beside another; what
// matters here is where this kernel meets the sm90 family, whose launches take longer.
double predicted_us(const Problem& problem, int sm_count, const PlanOptions& /*options*/) {
  constexpr double kLaunchUs = 2.5;
  constexpr double kScoresPerUs = 6000.0;  // of a multiprocessor
  constexpr std::int64_t kTileM = attention::key_groups::kTileM;
  const std::int64_t blocks =
      (problem.seq_q + kTileM - 1) / kTileM * problem.batch * problem.heads_q;
  const std::int64_t rounds = (blocks + sm_count - 1) / sm_count;
  return kLaunchUs + static_cast<double>(rounds) * static_cast<double>(kTileM) *
                         static_cast<double>(problem.seq_kv) / kScoresPerUs;
}

}  // namespace fp8_sdpa::sm80
