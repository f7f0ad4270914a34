// What the CUDA runtime hands out, destroyed when it goes out of scope. For builds with device
// code.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

namespace fp8_sdpa::bench {

struct DestroyEvent {
  void operator()(CUevent_st* event) const { static_cast<void>(cudaEventDestroy(event)); }
};
struct DestroyStream {
  void operator()(CUstream_st* stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct DestroyGraph {
  void operator()(CUgraph_st* graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
struct DestroyGraphExec {
  void operator()(CUgraphExec_st* exec) const { static_cast<void>(cudaGraphExecDestroy(exec)); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
using Graph = std::unique_ptr<CUgraph_st, DestroyGraph>;
using GraphExec = std::unique_ptr<CUgraphExec_st, DestroyGraphExec>;

}  // namespace fp8_sdpa::bench
