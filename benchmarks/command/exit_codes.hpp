// Exit codes of the tools.
#pragma once

namespace fp8_sdpa::bench {

inline constexpr int kExitPass = 0;
inline constexpr int kExitFail = 1;      ///< a gate failed, or a result file was refused
inline constexpr int kExitBadUsage = 2;  ///< bad usage or configuration, unwritable results, no GPU
                                         ///< where one is required, out of memory
}  // namespace fp8_sdpa::bench
