// When P has two E4M3 terms.
#pragma once

#include <cstdint>

namespace fp8_sdpa::attention {

/// Up to this many keys P has two E4M3 terms. Rounding P to one, in steps of 2^-3 of its binade,
/// moves an output by 0.015 / sqrt(keys) rms for uniform(-1, 1) values; the largest of some
/// thousand outputs, 4 to 5 times that, must stay below 0.01, which takes about 50 keys. A tile of
/// keys leaves room to spare, and a second term costs nothing there: such a kernel is all latency.
inline constexpr std::int64_t kMaxKeysOfTwoTerms = 128;

}  // namespace fp8_sdpa::attention
