// The wrong kernels of faults/ as they are linked into a test.
#pragma once

#include <span>
#include <string_view>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/gpu.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::wrong {

/// A kernel's launch function on the host executor, with one edit in the kernel: attention's, or
/// the quantiser's.
struct WrongKernel {
  using Launch = Status (*)(const Problem& problem, const gpu::Queue& queue);
  using Quantise = Status (*)(const QuantisePlan& plan, void* workspace);
  WrongKernel(std::string_view fault, std::string_view made_of, Launch function)
      : name(fault), kernel(made_of), launch(function) {}
  WrongKernel(std::string_view fault, std::string_view made_of, Quantise function)
      : name(fault), kernel(made_of), quantise(function) {}

  std::string_view name;    ///< of the fault
  std::string_view kernel;  ///< that it was made of: its tag
  Launch launch = nullptr;
  Quantise quantise = nullptr;
};

/// Every fault of the catalogue, in its order. Defined in generated code.
std::span<const WrongKernel> wrong_kernels();

}  // namespace fp8_sdpa::wrong
