// The names that users know the ladder's toggles by.
#pragma once

#include <array>

#include "dispatch/variant.hpp"

namespace fp8_sdpa {

/// A toggle by its name in the environment, in CMake and in result files.
struct ToggleName {
  const char* variable;
  bool Toggles::*member;
};
inline constexpr std::array kToggleNames = {
    ToggleName{"USE_KV_LUT", &Toggles::kv_lut},
    ToggleName{"USE_CP_ASYNC", &Toggles::cp_async},
    ToggleName{"USE_VEC_PV", &Toggles::vec_pv},
    ToggleName{"USE_WMMA_PV", &Toggles::wmma_pv},
    ToggleName{"USE_WARP_SPEC", &Toggles::warp_spec},
    ToggleName{"USE_XOR_SWIZZLE", &Toggles::xor_swizzle},
};

}  // namespace fp8_sdpa
