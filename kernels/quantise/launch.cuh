// Launches the quantiser's kernel, for one backend.
#pragma once

#include <algorithm>

#include "quantise/kernel.cuh"

namespace fp8_sdpa::quantiser {
// Each backend's own: else the linker would keep one of two functions of one name.
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
Status launch_kernel(const Quantisation& q, const Device& device, void* workspace,
                     const gpu::Queue& queue) {
  using K = Kernel<kFrom, kDim>;
  if (Status s = gpu::fill_zero(workspace, workspace_size(q).zeroed, queue); !s.ok()) return s;
  int resident = 0;
  if (Status s = gpu::resident_blocks<K>(device.sm_count, resident); !s.ok()) return s;
  const int blocks = blocks_of(q, resident);
  return gpu::launch<K>(dim3(static_cast<unsigned>(blocks)), make_params(q, workspace, blocks),
                        queue);
}

template <int kDim>
Status launch_dim(const Quantisation& q, const Device& device, void* workspace,
                  const gpu::Queue& queue) {
  switch (q.from.dtype) {
    case Dtype::kHalf: return launch_kernel<Dtype::kHalf, kDim>(q, device, workspace, queue);
    case Dtype::kBFloat16:
      return launch_kernel<Dtype::kBFloat16, kDim>(q, device, workspace, queue);
    default: return launch_kernel<Dtype::kFloat, kDim>(q, device, workspace, queue);
  }
}

}  // namespace GPU_BACKEND

template <Backend kBackend>
Status launch(const Quantisation& q, const Device& device, void* workspace,
              const gpu::Queue& queue) {
  switch (q.head_dim) {
    case 64: return launch_dim<64>(q, device, workspace, queue);
    case 128: return launch_dim<128>(q, device, workspace, queue);
    default: return launch_dim<256>(q, device, workspace, queue);
  }
}

}  // namespace fp8_sdpa::quantiser
