#include "attention/ladder_limits.hpp"
#include "stage_c/config.hpp"
#include "stage_c/stage_c.hpp"

namespace fp8_sdpa::stage_c {

Status supports(const Problem& problem, const Device& device) {
  constexpr attention::LadderFamily kFamily{
      .name = "stage_c", .min_sm_version = 80, .tile_m = kTileM, .tile_n = kTileN};
  return attention::check_ladder_limits(kFamily, problem, device);
}

}  // namespace fp8_sdpa::stage_c
