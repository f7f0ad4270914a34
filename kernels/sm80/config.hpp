// Tags of the sm80 family.
#pragma once

namespace fp8_sdpa::sm80 {

inline constexpr int kMinSmVersion = 80;

/// Named as the variant: the name is in the kernel's mangled symbol, where the compiler's resource
/// report and the profiler show it.
namespace tag {
struct sm80_mma {};
}  // namespace tag

}  // namespace fp8_sdpa::sm80
