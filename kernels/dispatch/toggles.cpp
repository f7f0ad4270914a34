#include <string>

#include "dispatch/variant.hpp"

namespace fp8_sdpa {

Status check_toggles(const Toggles& t) {
  if (t.vec_pv && t.wmma_pv) {
    return invalid_argument("USE_VEC_PV and USE_WMMA_PV exclude each other: P V is done one way");
  }
  if (t.warp_spec && !t.cp_async) {
    return invalid_argument(
        "USE_WARP_SPEC needs USE_CP_ASYNC: its producer warp copies with cp.async");
  }
  return {};
}

std::string stage_c_name(const Toggles& t) {
  std::string name = "stage_c";
  if (t.kv_lut) name += "_lut";
  if (t.cp_async) name += "_cp_async";
  if (t.vec_pv) name += "_vec_pv";
  if (t.wmma_pv) name += "_wmma_pv";
  if (t.warp_spec) name += "_warp_spec";
  if (t.xor_swizzle) name += "_swizzle";
  return name;
}

#ifndef FP8_SDPA_DEFAULT_USE_CP_ASYNC
#error "the build passes FP8_SDPA_DEFAULT_USE_*: see cmake/toggles.cmake"
#endif

Toggles configured_toggles() {
  return {.kv_lut = FP8_SDPA_DEFAULT_USE_KV_LUT != 0,
          .cp_async = FP8_SDPA_DEFAULT_USE_CP_ASYNC != 0,
          .vec_pv = FP8_SDPA_DEFAULT_USE_VEC_PV != 0,
          .wmma_pv = FP8_SDPA_DEFAULT_USE_WMMA_PV != 0,
          .warp_spec = FP8_SDPA_DEFAULT_USE_WARP_SPEC != 0,
          .xor_swizzle = FP8_SDPA_DEFAULT_USE_XOR_SWIZZLE != 0};
}

bool toggles_chosen() { return FP8_SDPA_TOGGLES_CHOSEN != 0; }

}  // namespace fp8_sdpa
