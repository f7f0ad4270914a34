// Where a launch goes. One type for both backends, outside their namespaces: the launch functions
// of both are bound in one table.
#pragma once

struct CUstream_st;

namespace fp8_sdpa {
struct ExecutorOptions;
}

namespace gpu {

struct Queue {
  CUstream_st* stream = nullptr;                        ///< device; null: the default stream
  const fp8_sdpa::ExecutorOptions* executor = nullptr;  ///< host; null: the defaults
};

}  // namespace gpu
