// Kernels that each break one limit of the ladder, named by what they break.
#pragma once

#include <cstddef>

namespace fp8_sdpa::planted {

namespace tag {
struct too_many_registers {};
struct too_much_shared {};
struct spills {};
}  // namespace tag

/// Dynamic shared memory of the kernels, per block.
inline constexpr std::size_t kSharedBytes = 1024;
inline constexpr std::size_t kTooManySharedBytes = 65 * 1024;

}  // namespace fp8_sdpa::planted
