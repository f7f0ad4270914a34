// What stands for cuDNN's peers in a build without cudnn-frontend.
#include "benchmarks/peers/cudnn_graph.hpp"
#include "benchmarks/peers/peer.hpp"

namespace fp8_sdpa::bench {
namespace {

std::string missing() {
  return "peers cudnn_fp8 and cudnn_bf16 are left out: cudnn-frontend or cudnn.h was not found "
         "when this was configured; run pip install nvidia-cudnn-frontend nvidia-cudnn-cu13 and "
         "configure with -DSDPA_CUDNN_ROOT=<site-packages>";
}

}  // namespace

const PeerSource& cudnn_source() {
  static constexpr PeerSource kSource{{}, missing, [] {}};
  return kSource;
}

Status load_cudnn() { return unsupported(missing()); }

Result<std::unique_ptr<CudnnGraph>> CudnnGraph::make(const Problem&, const Device&, bool) {
  return load_cudnn();
}

}  // namespace fp8_sdpa::bench
