// Stage C's sizes, limits and tags: what a variant of this family is, as compile-time facts.
#pragma once

#include "dispatch/variant.hpp"

namespace fp8_sdpa::stage_c {

inline constexpr int kTileM = 32;
inline constexpr int kTileN = 32;
inline constexpr int kHeadDim = 64;
inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;  ///< that compute; a producer warp comes on top
inline constexpr int kStages = 2;             ///< K/V staging buffers of the cp.async variants

/// What every variant of the ladder must stay within.
inline constexpr int kMaxRegisters = 128;
inline constexpr std::size_t kMaxSharedBytes = 64 * 1024;
inline constexpr int kRegistersPerMultiprocessor = 65536;

/// One tag type per variant, named as the variant: the name is in the kernel's mangled symbol,
/// where the compiler's resource report and the profiler show it.
namespace tag {
#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...)         \
  struct NAME {                                              \
    static constexpr Toggles kToggles = Toggles __VA_ARGS__; \
  };
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_VARIANT
}  // namespace tag

}  // namespace fp8_sdpa::stage_c
