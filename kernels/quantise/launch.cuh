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

/// The map of what a tensor is quantised from.
template <Dtype kFrom, int kDim>
Status encode(Slab& slab) {
  const Params& p = slab.tensor;
  const Strides& from = p.from_strides;
  constexpr std::uint64_t kBytes = sizeof(typename Block<kFrom, kDim>::Element);
  // A stride that is not walked must still be one that TMA takes.
  const auto stride = [&](std::int64_t elements, int size) {
    return size > 1 ? static_cast<std::uint64_t>(elements) * kBytes : 16;
  };
  const int heads = from.head == 0 ? 1 : p.heads.value;
  const int batch = from.batch == 0 ? 1 : p.all_heads / p.heads.value;
  slab.head_step = heads > 1 ? 1 : 0;
  slab.batch_step = batch > 1 ? 1 : 0;
  const gpu::TensorShape shape{
      .base = p.from,
      .rank = 4,
      .sizes = {kDim * kBytes, static_cast<std::uint64_t>(p.seq), static_cast<std::uint64_t>(heads),
                static_cast<std::uint64_t>(batch)},
      .strides = {0, stride(from.seq, p.seq), stride(from.head, heads), stride(from.batch, batch)},
      .box = {kPanelRowBytes, kSlabRows, 1, 1},
      .swizzle = gpu::Swizzle::k128B};
  return gpu::encode_tensor_map(shape, slab.map);
}

template <Dtype kFrom, int kDim>
Status launch_slabs_kernel(std::span<const Quantisation> all, const Device& device, void* workspace,
                           const gpu::Queue& queue) {
  std::int64_t count = 0;
  for (const Quantisation& q : all) count += slabs_of(q);
  const int blocks = static_cast<int>(std::min<std::int64_t>(count, device.sm_count));
  auto* const sums = static_cast<float*>(workspace);
  SlabsParams slabs = make_slabs_params(all, sums, blocks);
  for (Slab& slab : std::span(slabs.of).first(static_cast<std::size_t>(slabs.tensors))) {
    if (Status s = encode<kFrom, kDim>(slab); !s.ok()) return s;
  }
  const dim3 grid(static_cast<unsigned>(blocks));
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
Status launch_slabs(std::span<const Quantisation> all, const Device& device, void* workspace,
                    const gpu::Queue& queue) {
  return for_kind_of(all.front(), [&]<Dtype kFrom, int kDim>() {
    return launch_slabs_kernel<kFrom, kDim>(all, device, workspace, queue);
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
