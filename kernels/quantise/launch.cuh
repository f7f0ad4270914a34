// Launches the quantiser's kernel, for one backend.
#pragma once

#include <algorithm>
#include <span>

#include "quantise/kernel.cuh"
#include "quantise/slabs.cuh"

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

template <Dtype kFrom, int kDim>
Status launch_slabs_kernel(std::span<const Quantisation> all, float* sums,
                           const gpu::Queue& queue) {
  const SlabsParams slabs = make_slabs_params(all, sums);
  const dim3 grid(static_cast<unsigned>(slabs.end[all.size() - 1]));
  if (!slabs.behind_sums) return gpu::launch<Slabs<kFrom, kDim>>(grid, slabs, queue);
  const auto smooths = std::ranges::find_if(all, &Quantisation::smooth);
  const SumsParams params = make_sums_params(*smooths, sums);
  const dim3 sums_grid(static_cast<unsigned>(params.tensor.all_heads * params.shares));
  return gpu::launch_both<ColumnSums<kFrom, kDim>, Slabs<kFrom, kDim>>(sums_grid, params, grid,
                                                                       slabs, queue);
}

/// f.operator()<kFrom, kDim>() for those of a quantisation.
template <class F>
Status for_kind_of(const Quantisation& q, const F& f) {
  const auto of_dim = [&]<int kDim>() {
    switch (q.from.dtype) {
      case Dtype::kHalf: return f.template operator()<Dtype::kHalf, kDim>();
      case Dtype::kBFloat16: return f.template operator()<Dtype::kBFloat16, kDim>();
      default: return f.template operator()<Dtype::kFloat, kDim>();
    }
  };
  switch (q.head_dim) {
    case 64: return of_dim.template operator()<64>();
    case 128: return of_dim.template operator()<128>();
    default: return of_dim.template operator()<256>();
  }
}

}  // namespace GPU_BACKEND

template <Backend kBackend>
Status launch_slabs(std::span<const Quantisation> all, float* sums, const gpu::Queue& queue) {
  return for_kind_of(all.front(), [&]<Dtype kFrom, int kDim>() {
    return launch_slabs_kernel<kFrom, kDim>(all, sums, queue);
  });
}

template <Backend kBackend>
Status launch(const Quantisation& q, const Device& device, void* workspace,
              const gpu::Queue& queue) {
  return for_kind_of(q, [&]<Dtype kFrom, int kDim>() {
    return launch_kernel<kFrom, kDim>(q, device, workspace, queue);
  });
}

}  // namespace fp8_sdpa::quantiser
