// The quantiser's kernels, for one backend. The build writes a file for nvcc and one for the host
// compiler that include this text.
#pragma once

#include <algorithm>

#include "quantise/kernel.cuh"

namespace fp8_sdpa::quantiser {

template <Dtype kFrom, int kDim>
Status launch_kernel(const Params& params, int sm_count, const gpu::Queue& queue) {
  using K = Kernel<kFrom, kDim>;
  const int tickets =
      (params.all_heads + (params.pass_count - 1) * params.lag) * params.pass_count * params.tiles;
  const int resident = sm_count * K::kMinBlocks;
  return gpu::launch<K>(dim3(static_cast<unsigned>(std::min(tickets, resident))), params, queue);
}

template <int kDim>
Status launch_dim(Dtype from, const Params& params, int sm_count, const gpu::Queue& queue) {
  switch (from) {
    case Dtype::kHalf: return launch_kernel<Dtype::kHalf, kDim>(params, sm_count, queue);
    case Dtype::kBFloat16: return launch_kernel<Dtype::kBFloat16, kDim>(params, sm_count, queue);
    default: return launch_kernel<Dtype::kFloat, kDim>(params, sm_count, queue);
  }
}

template <Backend kBackend>
Status launch(const Quantisation& q, const Device& device, void* workspace,
              const gpu::Queue& queue) {
  const Params params = make_params(q, workspace);
  if (Status s = gpu::fill_zero(workspace, workspace_size(q).zeroed, queue); !s.ok()) return s;
  switch (q.head_dim) {
    case 64: return launch_dim<64>(q.from.dtype, params, device.sm_count, queue);
    case 128: return launch_dim<128>(q.from.dtype, params, device.sm_count, queue);
    default: return launch_dim<256>(q.from.dtype, params, device.sm_count, queue);
  }
}

template Status launch<gpu::kBackend>(const Quantisation&, const Device&, void*, const gpu::Queue&);

}  // namespace fp8_sdpa::quantiser
