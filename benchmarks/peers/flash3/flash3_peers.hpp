// The library of FlashAttention-3's kernels, found by a path.
#pragma once

#include "benchmarks/peers/flash3/flash3_abi.h"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// The environment variable that names the library.
inline constexpr const char* kFlash3Variable = "SDPA_FLASH3_LIBRARY";

/// Loads it. kUnsupported, in one line that says how to build it, where the path is null or empty,
/// or leads to no such library.
Result<const Flash3Functions*> load_flash3(const char* path);

}  // namespace fp8_sdpa::bench
