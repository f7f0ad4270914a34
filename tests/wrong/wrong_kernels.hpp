// The wrong kernels of faults/ as they are linked into a test.
#pragma once

#include <span>
#include <string_view>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/gpu.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::wrong {

/// A kernel's launch function on the host executor, with one edit in the kernel.
struct WrongKernel {
  std::string_view name;    ///< of the fault
  std::string_view kernel;  ///< that it was made of: its tag
  Status (*launch)(const Problem& problem, const gpu::Queue& queue);
};

/// Every fault of the catalogue, in its order. Defined in generated code.
std::span<const WrongKernel> wrong_kernels();

}  // namespace fp8_sdpa::wrong
