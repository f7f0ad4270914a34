// Tags of the sm89 family.
#pragma once

#include <cstdint>

namespace fp8_sdpa::sm89 {

inline constexpr int kMinSmVersion = 89;

/// Up to this many keys P has two E4M3 terms. Rounding P to one, in steps of 2^-3 of its binade,
/// moves an output by 0.015 / sqrt(keys) rms for uniform(-1, 1) values; the largest of some
/// thousand outputs, 4 to 5 times that, must stay below 0.01, which takes about 50 keys. One step
/// of the loop, 128 keys, leaves room to spare, and a second term costs nothing there: such a
/// kernel is all latency.
inline constexpr std::int64_t kMaxKeysOfTwoTerms = 128;

/// Named as the variant: the name is in the kernel's mangled symbol, where the compiler's resource
/// report and the profiler show it.
namespace tag {
struct sm89_mma {};
}  // namespace tag

}  // namespace fp8_sdpa::sm89
