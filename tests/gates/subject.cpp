#include "tests/gates/subject.hpp"

#include <cmath>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "reference/formats/half.hpp"
#include "reference/oracle/model.hpp"
#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime.h>

#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::tests {
namespace {

using reference::CaseData;
using reference::RunOutput;

RunOutput encoded(const reference::Attention& attention, Dtype output) {
  RunOutput run;
  for (const float value : attention.o) run.o.push_back(reference::encode_16(value, output));
  run.lse = attention.lse;
  return run;
}

Result<RunOutput> run_oracle(const CaseData& data, const Device& /*device*/, Dtype output,
                             const PlanOptions& /*options*/) {
  return encoded(
      reference::attention_fp64(reference::dequantise(data.q), reference::dequantise(data.k),
                                reference::dequantise(data.v), reference::sizes_of(data.shape),
                                data.softmax_scale),
      output);
}

Subject model_subject(const char* name, reference::Weights weights) {
  return {name, Backend::kHost, weights == reference::Weights::kE4M3 ? Dtype::kE4M3 : Dtype::kHalf,
          [weights](const CaseData& data, const Device& /*device*/, Dtype output,
                    const PlanOptions& /*options*/) -> Result<RunOutput> {
            reference::ModelOptions options;
            options.weights = weights;
            options.output = output;
            return encoded(
                reference::run_model(data.q, data.k, data.v, reference::sizes_of(data.shape),
                                     data.softmax_scale, options)
                    .attention,
                output);
          }};
}

Subject kernel_subject(Backend backend, const Kernel& kernel) {
  return {
      std::string(name_of(backend)) + "_" + kernel.name, backend, kernel.variant->weights,
      [kernel](const CaseData& data, const Device& device, Dtype output, const PlanOptions& plan) {
        reference::CheckOptions options;
        options.plan = plan;
        options.output = output;
        options.padded = true;
        options.lse_sum = kernel.lse_sum;
        return reference::run_variant(*kernel.variant, data, device, options);
      },
      kernel};
}

#if FP8_SDPA_HAS_DEVICE
/// forward() of a plan, captured.
struct Graph {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;

  Status capture(const Plan& plan, void* workspace) {
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Status captured = forward(plan, workspace, stream);
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaStreamEndCapture(stream, &graph));
    if (!captured.ok()) return captured;
    return FP8_SDPA_CUDA_STATUS(cudaGraphInstantiate(&replay, graph, 0));
  }
  ~Graph() {
    if (replay != nullptr) static_cast<void>(cudaGraphExecDestroy(replay));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
  }
};

#endif

}  // namespace

void PrintTo(const Subject& subject, std::ostream* os) { *os << subject.name; }

std::vector<Subject> all_subjects() {
  std::vector<Subject> subjects = {{"host_oracle", Backend::kHost, Dtype::kHalf, run_oracle},
                                   model_subject("host_model_half", reference::Weights::kHalf),
                                   model_subject("host_model_e4m3", reference::Weights::kE4M3)};
  for (const Backend backend : kBackends) {
    for (const Kernel& kernel : all_kernels()) subjects.push_back(kernel_subject(backend, kernel));
  }
  return subjects;
}

CaseData codes_of(const reference::Shape& shape, std::uint64_t seed, Dtype dtype) {
  Result<reference::Inputs> inputs = reference::draw_inputs(shape, seed);
  if (!inputs.ok()) throw std::invalid_argument(inputs.status().message());
  CaseData data;
  data.shape = shape;
  data.seed = seed;
  data.dtype = dtype;
  data.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  const std::int64_t q_heads = std::int64_t{shape.batch} * shape.heads_q;
  const std::int64_t kv_heads = std::int64_t{shape.batch} * shape.heads_kv;
  data.q = reference::quantise(inputs->q, q_heads, shape.seq_q * shape.head_dim, dtype);
  data.k = reference::quantise(inputs->k, kv_heads, shape.seq_kv * shape.head_dim, dtype);
  const Dtype of_v = dtype == Dtype::kInt8 ? Dtype::kE4M3 : dtype;
  data.v = reference::quantise(inputs->v, kv_heads, shape.seq_kv * shape.head_dim, of_v);
  return data;
}

void vary_descales(CaseData& data) {
  constexpr int kSpread = 5;
  int step = 0;
  for (auto* tensor : {&data.q, &data.k, &data.v}) {
    for (float& descale : tensor->descales) {
      descale *= 0.83F * std::ldexp(1.0F + 0.1F * static_cast<float>(step % 3), step % kSpread - 2);
      ++step;
    }
  }
}

void vary_block_descales(CaseData& data) {
  const std::int64_t dim = data.shape.head_dim;
  data.q = reference::in_blocks(std::move(data.q), kQueriesOfBlock * dim);
  data.k = reference::in_blocks(std::move(data.k), kKeysOfBlock * dim);
  data.v = reference::in_blocks(std::move(data.v), kKeysOfBlock * dim);
  vary_descales(data);
}

Result<Launch> kept_launch(const Plan& plan, void* workspace) {
#if FP8_SDPA_HAS_DEVICE
  if (plan.device().backend == Backend::kDevice) {
    const auto graph = std::make_shared<Graph>();
    if (Status s = graph->capture(plan, workspace); !s.ok()) return s;
    return Launch(
        [graph] { return FP8_SDPA_CUDA_STATUS(cudaGraphLaunch(graph->replay, graph->stream)); });
  }
#endif
  return Launch([plan, workspace] { return forward(plan, workspace, nullptr); });
}

}  // namespace fp8_sdpa::tests
