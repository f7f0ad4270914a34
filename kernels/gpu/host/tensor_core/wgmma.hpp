// wgmma on the host executor: see gpu/wgmma.hpp.
#pragma once

#include <cstdint>

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host {

/// What operands hold. A step of k is 32 bytes of any.
enum class WgmmaType : std::uint8_t { kE4M3, kE5M2, kInt8, kHalf, kBFloat16 };
constexpr bool is_16_bit(WgmmaType type) {
  return type == WgmmaType::kHalf || type == WgmmaType::kBFloat16;
}
template <class Fp8>
constexpr WgmmaType wgmma_type(Fp8 type) {
  return type == Fp8::kE5M2 ? WgmmaType::kE5M2 : WgmmaType::kE4M3;
}

/// One lane's part in a multiply.
struct WgmmaOperands {
  float* d;                    ///< with kInt8: the bits of integers
  int n;                       ///< columns; n / 2 registers at d
  const std::uint32_t* a;      ///< four registers, or null: A is in shared memory
  std::uint64_t a_descriptor;  ///< if a is null
  std::uint64_t b_descriptor;
  bool accumulate;
  WgmmaType a_type, b_type;  ///< one and the same, but for FP8; B of 16 bits is N-major
};

void wgmma(const WgmmaOperands& operands, Location loc);
void wgmma_fence(Location loc);
void wgmma_commit(Location loc);
void wgmma_wait(int groups_in_flight, Location loc);

}  // namespace gpu::host
