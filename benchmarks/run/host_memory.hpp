// Whether a shape's tensors and references fit into this machine, asked before they are made.
#pragma once

#include <cstdint>

#include "fp8_sdpa/status.hpp"
#include "reference/inputs/shape.hpp"

namespace fp8_sdpa::bench {

/// What this process can have at most: the machine's memory, or its control group's limit.
std::int64_t host_memory_bytes();

/// The least that judging this shape takes on the host: Q, K and V as fp32, as codes and
/// dequantised, and O by two references and by the kernel.
std::int64_t least_host_bytes(const reference::Shape& shape);

/// kOutOfMemory, with both numbers, where least_host_bytes() is more than `there`.
Status check_host_memory(const reference::Shape& shape, std::int64_t there = host_memory_bytes());

}  // namespace fp8_sdpa::bench
