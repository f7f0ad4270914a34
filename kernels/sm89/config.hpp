// Tags of the sm89 family.
#pragma once

#include <cstdint>

namespace fp8_sdpa::sm89 {

inline constexpr int kMinSmVersion = 89;

/// Named as the variant: the name is in the kernel's mangled symbol, where the compiler's resource
/// report and the profiler show it.
namespace tag {
struct sm89_mma {};
}  // namespace tag

}  // namespace fp8_sdpa::sm89
