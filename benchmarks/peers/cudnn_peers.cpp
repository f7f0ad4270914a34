// cuDNN's FP8 and bf16 attention as peers.
#include <memory>
#include <utility>

#include "benchmarks/peers/cudnn_graph.hpp"
#include "benchmarks/peers/peer.hpp"
#include "dispatch/plan_state.hpp"
#include "dispatch/variant_impl.hpp"

namespace fp8_sdpa::bench {
namespace {

/// Graphs of the plans that there are: a plan's state is bytes that are copied, so it cannot own
/// one.
std::vector<std::unique_ptr<CudnnGraph>>& graphs() {
  static std::vector<std::unique_ptr<CudnnGraph>> all;
  return all;
}

bool contiguous(const Tensor& tensor, std::int64_t heads, std::int64_t seq, std::int64_t dim) {
  return tensor.stride_dim == 1 && tensor.stride_seq == dim && tensor.stride_head == seq * dim &&
         tensor.stride_batch == heads * seq * dim;
}

Status check_device(const Device& device, int sm_version) {
  if (device.backend != Backend::kDevice) return unsupported("cuDNN needs a GPU");
  if (device.sm_version < sm_version) {
    return unsupported("cuDNN needs sm_" + std::to_string(sm_version) + " for it, " + device.name +
                       " is sm_" + std::to_string(device.sm_version));
  }
  return load_cudnn();
}

Status supports_common(const Problem& problem) {
  constexpr int kMaxDim = 256;
  constexpr int kDimStep = 16;
  if (problem.lse != nullptr) return unsupported("cuDNN is asked for O alone, without an LSE");
  if (problem.head_dim > kMaxDim || problem.head_dim % kDimStep != 0) {
    return unsupported("cuDNN serves head_dim in multiples of 16 up to 256, got " +
                       std::to_string(problem.head_dim));
  }
  const bool plain = contiguous(problem.q, problem.heads_q, problem.seq_q, problem.head_dim) &&
                     contiguous(problem.k, problem.heads_kv, problem.seq_kv, problem.head_dim) &&
                     contiguous(problem.v, problem.heads_kv, problem.seq_kv, problem.head_dim) &&
                     contiguous(problem.o, problem.heads_q, problem.seq_q, problem.head_dim);
  return plain ? Status() : unsupported("the peers are given (B,H,S,D) contiguous tensors alone");
}

Status supports_fp8(const Problem& problem, const Device& device) {
  constexpr int kHopper = 90;
  constexpr int kBlackwell = 100;
  if (Status s = check_device(device, kHopper); !s.ok()) return s;
  if (problem.mask == Mask::kCausal && problem.seq_q != problem.seq_kv &&
      device.sm_version < kBlackwell) {
    return unsupported("cuDNN has no bottom-right causal mask for FP8 on Hopper");
  }
  if (problem.q.dtype != Dtype::kE4M3 || problem.k.dtype != Dtype::kE4M3 ||
      problem.v.dtype != Dtype::kE4M3) {
    return unsupported("this peer is given E4M3 alone");
  }
  return supports_common(problem);
}

Status supports_bf16(const Problem& problem, const Device& device) {
  constexpr int kAmpere = 80;
  if (Status s = check_device(device, kAmpere); !s.ok()) return s;
  return supports_common(problem);
}

template <bool kAsBf16>
Status prepare(const Problem& problem, const Device& device, const PlanOptions& /*options*/,
               detail::PlanState& state) {
  auto graph = CudnnGraph::make(problem, device, kAsBf16);
  if (!graph.ok()) return graph.status();
  graphs().push_back(std::move(*graph));
  detail::put(state, graphs().back().get());
  return {};
}

Status launch(const detail::PlanState& state, void* /*workspace*/, const gpu::Queue& queue) {
  return detail::get<CudnnGraph*>(state)->launch(queue.stream);
}

double output_scale(const Plan& plan) {
  return detail::get<CudnnGraph*>(plan.state())->output_scale();
}

constexpr detail::VariantImpl kFp8Impl{
    supports_fp8, {nullptr, prepare<false>, launch}, {}, nullptr};
constexpr detail::VariantImpl kBf16Impl{
    supports_bf16, {nullptr, prepare<true>, launch}, {}, nullptr};

constexpr Peer kPeers[] = {
    {{"peer/cudnn_fp8",
      "cuDNN's FP8 attention, FP8 output",
      Family::kPeer,
      {},
      {},
      &kFp8Impl,
      Dtype::kE4M3},
     {reference::Weights::kE4M3, Dtype::kE4M3},
     false,
     output_scale},
    {{"peer/cudnn_bf16",
      "cuDNN's bf16 attention",
      Family::kPeer,
      {},
      {},
      &kBf16Impl,
      Dtype::kBFloat16},
     {reference::Weights::kBFloat16, Dtype::kBFloat16},
     false,
     output_scale},
};

std::string missing() {
  const Status loaded = load_cudnn();
  return loaded.ok() ? "" : "peers cudnn_fp8 and cudnn_bf16 are left out: " + loaded.message();
}

}  // namespace

const PeerSource& cudnn_source() {
  static constexpr PeerSource kSource{kPeers, missing, [] { graphs().clear(); }};
  return kSource;
}

}  // namespace fp8_sdpa::bench
