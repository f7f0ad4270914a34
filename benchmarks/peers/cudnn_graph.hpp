// One attention graph of cuDNN, prepared. The only door to cudnn-frontend, whose headers take long
// to compile: cudnn_graph.cpp alone includes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/memory.hpp"

struct CUstream_st;

namespace fp8_sdpa::bench {

/// Loads cuDNN: SDPA_CUDNN_LIBRARY of the environment, else libcudnn.so.9 where the loader finds
/// it, else the file that the build found. kUnsupported, in one line, where there is none. Once per
/// process.
Status load_cudnn();

/// A built graph with its memory.
class CudnnGraph {
 public:
  /// Builds the graph for the problem's sizes, on its tensors: of the problem's own format
  /// (FP8 in, FP8 out, scales for P and O of its own), or, with `as_bf16`, on Q, K and V as bf16,
  /// copies where they are FP8, with a bf16 output. kUnsupported with cuDNN's reason where it does
  /// not serve it.
  static Result<std::unique_ptr<CudnnGraph>> make(const Problem& problem, const Device& device,
                                                  bool as_bf16);
  virtual ~CudnnGraph() = default;

  virtual Status launch(CUstream_st* stream) = 0;

  /// What decoded elements of O are to be multiplied by.
  virtual double output_scale() const = 0;
};

}  // namespace fp8_sdpa::bench
