// The library of FlashAttention-3's kernels, found by a path.
#pragma once

#include <memory>

#include "benchmarks/peers/flash3/flash3_abi.h"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa::bench {

/// The environment variable that names the library.
inline constexpr const char* kFlash3Variable = "SDPA_FLASH3_LIBRARY";

/// Loads it. kUnsupported, in one line that says how to build it, where the path is null or empty,
/// or leads to no such library.
Result<const Flash3Functions*> load_flash3(const char* path);

/// FlashAttention-3's attention on a problem's tensors, prepared: E4M3 with a descale a KV head, or
/// bf16. As many splits of the keys as its heuristics say.
class Flash3Attention {
 public:
  /// kUnsupported, in one line, where the library is not there or does not serve it.
  static Result<std::unique_ptr<Flash3Attention>> make(const Problem& problem,
                                                       const Device& device);
  virtual ~Flash3Attention() = default;
  virtual Status launch(CUstream_st* stream) = 0;
};

}  // namespace fp8_sdpa::bench
