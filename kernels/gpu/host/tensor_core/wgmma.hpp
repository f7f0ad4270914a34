// wgmma on the host executor: see gpu/wgmma.hpp.
#pragma once

#include <cstdint>

#include "gpu/host/executor/runtime.hpp"
#include "gpu/host/tensor_core/mma.hpp"

namespace gpu::host {

/// One lane's part in a multiply.
struct WgmmaOperands {
  float* d;
  int n;                       ///< columns; n / 2 registers at d
  const std::uint32_t* a;      ///< four registers, or null: A is in shared memory
  std::uint64_t a_descriptor;  ///< if a is null
  std::uint64_t b_descriptor;
  bool accumulate;
  Fp8Types types;
};

void wgmma(const WgmmaOperands& operands, Location loc);
void wgmma_fence(Location loc);
void wgmma_commit(Location loc);
void wgmma_wait(int groups_in_flight, Location loc);

}  // namespace gpu::host
