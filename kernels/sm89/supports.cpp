#include "attention/key_groups.hpp"
#include "attention/ladder_limits.hpp"
#include "sm89/config.hpp"
#include "sm89/sm89.hpp"

namespace fp8_sdpa::sm89 {

Status supports(const Problem& problem, const Device& device) {
  constexpr attention::LadderFamily kFamily{.name = "sm89_mma",
                                            .min_sm_version = kMinSmVersion,
                                            .tile_m = attention::key_groups::kTileM,
                                            .tile_n = attention::key_groups::kTileN};
  return attention::check_ladder_limits(kFamily, problem, device);
}

}  // namespace fp8_sdpa::sm89
