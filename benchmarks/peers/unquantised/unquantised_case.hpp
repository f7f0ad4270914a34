// One shape of bf16 tensors, and what is launched on them: our call with each option, attention
// alone on codes, the quantiser, and peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/peers/cudnn_graph.hpp"
#include "benchmarks/peers/flash3/flash3_peers.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/inputs/shape.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::bench {

using Launch = std::function<Status(CUstream_st*)>;

struct QuantiseOptions {
  bool rotate = false, smooth = false;
};

/// Somebody else's attention of the shape.
struct UnquantisedPeer {
  const char* name;
  Launch launch;     ///< null where it is not there
  std::string why;   ///< it is not there
  Dtype output;      ///< in O's memory; codes fill its first half
  double scale = 1;  ///< of what is decoded there
};

class UnquantisedCase {
 public:
  /// `values` are as bf16 holds them. All three outlive it.
  static Result<std::unique_ptr<UnquantisedCase>> make(const reference::Shape& shape,
                                                       const reference::Inputs& values,
                                                       const Device& device);

  const Problem& attention() const { return problem_.attention; }  ///< of the bf16 tensors
  std::uint64_t seed() const { return problem_.seed; }             ///< of rotations

  Result<std::unique_ptr<reference::Buffer>> buffer(std::size_t bytes, const char* name) const;

  /// One launch into an O of NaN, whose bits it returns.
  Result<std::vector<std::uint16_t>> output_of(const Launch& launch) const;

  /// The whole call. What is launched keeps its workspace for as long as this is there.
  Result<UnquantisedPlan> plan_call(const QuantiseOptions& options, Granularity granularity,
                                    Precision precision) const;
  Result<Launch> call(const QuantiseOptions& options, Granularity granularity,
                      Precision precision = Precision::kFp8);

  /// Of one of the problem's tensors, contiguous.
  Quantisation quantisation(const Tensor& from, void* codes, float* descales, int block_rows = 0,
                            Dtype format = Dtype::kE4M3) const;
  Result<Launch> quantiser(const Quantisation& q);

  /// Our attention alone on codes of the problem's tensors, with Precision::kInt8 on V itself.
  Result<Launch> attention_alone(Granularity granularity, Precision precision = Precision::kFp8);

  /// cuDNN's and FlashAttention-3's, of bf16 on the problem's tensors and of FP8 on codes of them,
  /// without options: with a scale a tensor for cuDNN, a head for FlashAttention-3.
  Result<std::vector<UnquantisedPeer>> peers();

 private:
  using Memory = std::unique_ptr<reference::Buffer>;

  UnquantisedCase(const reference::Shape& shape, const reference::Inputs& values,
                  const Device& device)
      : shape_(shape), values_(values), device_(device) {}

  Status fill();
  Result<void*> keep(std::size_t bytes, const char* name);
  /// Attention on codes made of the problem's tensors.
  Result<Problem> codes_of(Granularity granularity, Dtype format, bool of_v, bool one_head);

  const reference::Shape& shape_;
  const reference::Inputs& values_;
  const Device& device_;
  UnquantisedProblem problem_;
  std::vector<Memory> tensors_;  ///< Q, K, V, O
  std::vector<Memory> kept_;
  std::vector<std::unique_ptr<CudnnGraph>> graphs_;
  std::vector<std::unique_ptr<Flash3Attention>> flash3_;
};

}  // namespace fp8_sdpa::bench
