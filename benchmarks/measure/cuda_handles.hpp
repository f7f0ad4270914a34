// What the CUDA runtime hands out, destroyed when it goes out of scope. For builds with device
// code.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "fp8_sdpa/status.hpp"
#include "gpu/cuda_check.hpp"

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

/// A graph of what `launch` puts on the stream, `launches` times; after one launch outside of it.
template <class Launch>
Status capture(const Stream& stream, int launches, const Launch& launch, GraphExec& exec) {
  // The first launch of a kernel sets its attributes and loads its module: not while capturing.
  if (Status s = launch(stream.get()); !s.ok()) return s;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  Status launched;
  for (int i = 0; i < launches && launched.ok(); ++i) launched = launch(stream.get());
  // Capturing ends whatever happened, so that the stream stays usable; the launch's error is the
  // one to tell.
  cudaGraph_t raw_graph = nullptr;
  const Status ended = FP8_SDPA_CUDA_STATUS(cudaStreamEndCapture(stream.get(), &raw_graph));
  const Graph graph(raw_graph);
  if (!launched.ok()) return launched;
  if (!ended.ok()) return ended;
  cudaGraphExec_t raw_exec = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGraphInstantiateWithFlags(&raw_exec, graph.get(), 0));
  exec.reset(raw_exec);
  return {};
}

}  // namespace fp8_sdpa::bench
