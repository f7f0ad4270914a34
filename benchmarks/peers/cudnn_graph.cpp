// cuDNN's scaled-dot-product attention through cudnn-frontend's graph API. What it takes and gives:
// cudnn-frontend's documentation, operations/Attention.
#include "benchmarks/peers/cudnn_graph.hpp"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <unordered_map>
#include <utility>

#include "gpu/cuda_check.hpp"
#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/text.hpp"

namespace cudnn_frontend {
// The frontend's functions look cuDNN's up in it.
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace fp8_sdpa::bench {
namespace {

namespace fe = cudnn_frontend;
using Attributes = fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Attributes>;
using reference::Buffer;

Status status_of(fe::error_t error) {
  if (error.is_good()) return {};
  return unsupported("cuDNN: " + reference::one_line(error.get_message()));
}

Status status_of(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return unsupported(std::string(call) + " answers with status " +
                     std::to_string(static_cast<int>(status)));
}

struct DestroyHandle {
  void operator()(cudnnContext* handle) const {
    static_cast<void>(fe::detail::destroy_handle(handle));
  }
};

/// The graph's tensors.
enum Uid : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kDescaleQ,
  kDescaleK,
  kDescaleV,
  kDescaleS,
  kScaleS,
  kScaleO,
  kAmaxS,
  kAmaxO
};

/// Largest weight times this stays in E4M3, and small ones out of its subnormals for longer.
constexpr float kScaleOfP = 256;

class Graph final : public CudnnGraph {
 public:
  Graph(const Problem& problem, Device device, bool as_bf16)
      : problem_(problem), device_(std::move(device)), as_bf16_(as_bf16) {}

  Status set_up() {
    cudnnHandle_t raw = nullptr;
    if (Status s = status_of(fe::detail::create_handle(&raw), "cudnnCreate"); !s.ok()) return s;
    handle_.reset(raw);
    if (Status s = as_bf16_ ? bind_bf16() : bind_fp8(); !s.ok()) return s;
    if (Status s = as_bf16_ ? describe_bf16() : describe_fp8(); !s.ok()) return s;
    if (Status s = build(); !s.ok()) return s;
    return as_bf16_ ? Status() : choose_output_scale();
  }

  Status launch(CUstream_st* stream) override {
    if (Status s = status_of(fe::detail::set_stream(handle_.get(), stream), "cudnnSetStream");
        !s.ok()) {
      return s;
    }
    fe::error_t error =
        graph_.execute(handle_.get(), pointers_, workspace_ ? workspace_->data() : nullptr);
    if (error.is_good()) return {};
    return {StatusCode::kDeviceError, "cuDNN: " + reference::one_line(error.get_message())};
  }

  double output_scale() const override { return 1.0 / scale_o_; }

 private:
  Result<void*> allocate(std::size_t bytes, const char* name) {
    auto buffer = reference::allocate(device_, bytes, name);
    if (!buffer.ok()) return buffer.status();
    buffers_.push_back(std::move(*buffer));
    return buffers_.back()->data();
  }

  /// A value in device memory that the graph reads or writes.
  Status add_scalar(Uid uid, float value) {
    const auto data = allocate(sizeof(float), "a scale of cuDNN");
    if (!data.ok()) return data.status();
    pointers_[uid] = *data;
    return buffers_.back()->upload(&value);
  }

  Status bind_fp8() {
    pointers_ = {
        {kQ, problem_.q.data}, {kK, problem_.k.data}, {kV, problem_.v.data}, {kO, problem_.o.data}};
    // The first of the equal descales of all heads.
    pointers_[kDescaleQ] = const_cast<float*>(problem_.descales.q);
    pointers_[kDescaleK] = const_cast<float*>(problem_.descales.k);
    pointers_[kDescaleV] = const_cast<float*>(problem_.descales.v);
    const std::pair<Uid, float> scalars[] = {{kDescaleS, 1.0F / kScaleOfP},
                                             {kScaleS, kScaleOfP},
                                             {kScaleO, 1.0F},
                                             {kAmaxS, 0.0F},
                                             {kAmaxO, 0.0F}};
    for (const auto& [uid, value] : scalars) {
      if (Status s = add_scalar(uid, value); !s.ok()) return s;
    }
    return {};
  }

  /// The values of an FP8 tensor as bf16, in memory of their own.
  Status bind_converted(Uid uid, const Tensor& tensor, const float* descale, std::int64_t heads,
                        std::int64_t seq) {
    const auto count = static_cast<std::size_t>(problem_.batch * heads * seq * problem_.head_dim);
    std::vector<std::uint8_t> codes(count);
    float factor = 0;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(codes.data(), tensor.data, count, cudaMemcpyDeviceToHost));
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(&factor, descale, sizeof(factor), cudaMemcpyDeviceToHost));
    std::array<std::uint16_t, 256> table{};
    for (std::size_t code = 0; code < table.size(); ++code) {
      const float value = reference::decode_table(tensor.dtype)[code] * factor;
      table[code] = reference::encode_16(value, Dtype::kBFloat16);
    }
    std::vector<std::uint16_t> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = table[codes[i]];
    const auto data = allocate(count * sizeof(std::uint16_t), "a bf16 tensor");
    if (!data.ok()) return data.status();
    pointers_[uid] = *data;
    return buffers_.back()->upload(values.data());
  }

  Status bind_bf16() {
    pointers_[kO] = problem_.o.data;
    if (problem_.q.dtype == Dtype::kBFloat16) {
      for (const auto& [uid, tensor] :
           {std::pair{kQ, &problem_.q}, {kK, &problem_.k}, {kV, &problem_.v}}) {
        pointers_[uid] = tensor->data;
      }
      return {};
    }
    const std::int64_t heads = problem_.heads_kv;
    if (Status s =
            bind_converted(kQ, problem_.q, problem_.descales.q, problem_.heads_q, problem_.seq_q);
        !s.ok()) {
      return s;
    }
    if (Status s = bind_converted(kK, problem_.k, problem_.descales.k, heads, problem_.seq_kv);
        !s.ok()) {
      return s;
    }
    return bind_converted(kV, problem_.v, problem_.descales.v, heads, problem_.seq_kv);
  }

  fe::DataType_t io_type() const {
    if (as_bf16_) return fe::DataType_t::BFLOAT16;
    return problem_.q.dtype == Dtype::kE4M3 ? fe::DataType_t::FP8_E4M3 : fe::DataType_t::FP8_E5M2;
  }

  std::vector<std::int64_t> strides_of(const Tensor& tensor) const {
    return {tensor.stride_batch, tensor.stride_head, tensor.stride_seq, tensor.stride_dim};
  }

  TensorPointer add_tensor(Uid uid, const Tensor& tensor, std::int64_t heads, std::int64_t seq) {
    return graph_.tensor(Attributes()
                             .set_uid(uid)
                             .set_dim({problem_.batch, heads, seq, problem_.head_dim})
                             .set_stride(strides_of(tensor))
                             .set_data_type(io_type()));
  }

  TensorPointer add_scale(Uid uid) {
    return graph_.tensor(Attributes()
                             .set_uid(uid)
                             .set_dim({1, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::FLOAT));
  }

  void set_output(const TensorPointer& o) const {
    o->set_output(true)
        .set_uid(kO)
        .set_dim({problem_.batch, problem_.heads_q, problem_.seq_q, problem_.head_dim})
        .set_stride(strides_of(problem_.o))
        .set_data_type(io_type());
  }

  static void set_amax(const TensorPointer& amax, Uid uid) {
    amax->set_output(true)
        .set_uid(uid)
        .set_dim({1, 1, 1, 1})
        .set_stride({1, 1, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }

  void set_types() {
    graph_.set_io_data_type(io_type())
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  /// The options that both kinds have. On Hopper FP8 is declined with a bottom-right mask, which is
  /// the top-left one where there are as many queries as keys.
  template <class Options>
  void set_options(Options& options) const {
    options.set_name("sdpa").set_generate_stats(false).set_attn_scale(problem_.softmax_scale);
    if (problem_.mask != Mask::kCausal) return;
    if (problem_.seq_q == problem_.seq_kv) {
      options.set_causal_mask(true);
    } else {
      options.set_causal_mask_bottom_right(true);
    }
  }

  Status describe_fp8() {
    set_types();
    auto q = add_tensor(kQ, problem_.q, problem_.heads_q, problem_.seq_q);
    auto k = add_tensor(kK, problem_.k, problem_.heads_kv, problem_.seq_kv);
    auto v = add_tensor(kV, problem_.v, problem_.heads_kv, problem_.seq_kv);
    fe::graph::SDPA_fp8_attributes options;
    set_options(options);
    auto [o, stats, amax_s, amax_o] =
        graph_.sdpa_fp8(q, k, v, add_scale(kDescaleQ), add_scale(kDescaleK), add_scale(kDescaleV),
                        add_scale(kDescaleS), add_scale(kScaleS), add_scale(kScaleO), options);
    set_output(o);
    set_amax(amax_s, kAmaxS);
    set_amax(amax_o, kAmaxO);
    return {};
  }

  Status describe_bf16() {
    set_types();
    auto q = add_tensor(kQ, problem_.q, problem_.heads_q, problem_.seq_q);
    auto k = add_tensor(kK, problem_.k, problem_.heads_kv, problem_.seq_kv);
    auto v = add_tensor(kV, problem_.v, problem_.heads_kv, problem_.seq_kv);
    fe::graph::SDPA_attributes options;
    set_options(options);
    auto [o, stats] = graph_.sdpa(q, k, v, options);
    set_output(o);
    return {};
  }

  Status build() {
    if (Status s = status_of(graph_.validate()); !s.ok()) return s;
    if (Status s = status_of(graph_.build_operation_graph(handle_.get())); !s.ok()) return s;
    if (Status s = status_of(graph_.create_execution_plans({fe::HeurMode_t::A})); !s.ok()) return s;
    if (Status s = status_of(graph_.check_support(handle_.get())); !s.ok()) return s;
    if (Status s = status_of(graph_.build_plans(handle_.get())); !s.ok()) return s;
    std::int64_t bytes = 0;
    if (Status s = status_of(graph_.get_workspace_size(bytes)); !s.ok()) return s;
    if (bytes == 0) return {};
    const auto data = allocate(static_cast<std::size_t>(bytes), "cuDNN's workspace");
    if (!data.ok()) return data.status();
    workspace_ = std::move(buffers_.back());
    buffers_.pop_back();
    return {};
  }

  /// As users do with the amax of the step before: O's largest element becomes the format's.
  Status choose_output_scale() {
    if (Status s = launch(nullptr); !s.ok()) return s;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    float amax = 0;
    FP8_SDPA_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(&amax, pointers_.at(kAmaxO), sizeof(amax), cudaMemcpyDeviceToHost));
    if (!(amax > 0) || !std::isfinite(amax)) return {};
    // A power of two, so that it adds no rounding of its own.
    scale_o_ = std::exp2(std::floor(std::log2(reference::max_finite(problem_.q.dtype) / amax)));
    const auto scale = static_cast<float>(scale_o_);
    return FP8_SDPA_CUDA_STATUS(
        cudaMemcpy(pointers_.at(kScaleO), &scale, sizeof(scale), cudaMemcpyHostToDevice));
  }

  Problem problem_;
  Device device_;
  bool as_bf16_;
  double scale_o_ = 1.0;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unique_ptr<Buffer> workspace_;
  std::unordered_map<std::int64_t, void*> pointers_;
  std::unique_ptr<cudnnContext, DestroyHandle> handle_;
  fe::graph::Graph graph_;
};

Status open_cudnn() {
  const char* chosen = std::getenv("SDPA_CUDNN_LIBRARY");
  std::vector<std::string> names = {"libcudnn.so.9", FP8_SDPA_CUDNN_LIBRARY};
  if (chosen != nullptr) names = {chosen};
  for (const std::string& name : names) {
    if (name.empty() || fe::cudnn_dlhandle != nullptr) continue;
    fe::cudnn_dlhandle = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  if (fe::cudnn_dlhandle != nullptr) return {};
  return unsupported(names.front() +
                     " cannot be loaded: install cuDNN 9, or set SDPA_CUDNN_LIBRARY to the file");
}

}  // namespace

Status load_cudnn() {
  static const Status status = open_cudnn();
  return status;
}

Result<std::unique_ptr<CudnnGraph>> CudnnGraph::make(const Problem& problem, const Device& device,
                                                     bool as_bf16) {
  if (Status s = load_cudnn(); !s.ok()) return s;
  try {
    auto graph = std::make_unique<Graph>(problem, device, as_bf16);
    if (Status s = graph->set_up(); !s.ok()) return s;
    return Result<std::unique_ptr<CudnnGraph>>(std::move(graph));
  } catch (const std::exception& error) {
    return unsupported("cuDNN: " + reference::one_line(error.what()));
  }
}

}  // namespace fp8_sdpa::bench
