// Bytes between registers: PTX ISA, "Data Movement and Conversion Instructions: prmt".
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"

namespace gpu {
inline namespace GPU_BACKEND {

/// prmt.b32 (PTX ISA, "prmt"): byte i of the result is the byte of (a, b) that hex digit i of
/// `selector` names: 0 to 3 are a's, 4 to 7 are b's, the least significant first. Digits above 7
/// are taken modulo 8.
GPU_FN std::uint32_t prmt(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#if GPU_ON_DEVICE
  return __byte_perm(a, b, selector);
#else
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned from = selector >> (4 * i) & 7U;
    result |= static_cast<std::uint32_t>(bytes >> (8 * from) & 0xffU) << (8 * i);
  }
  return result;
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
