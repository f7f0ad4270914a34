// The quantiser's kernels, for one backend. The build writes a file for nvcc and one for the host
// compiler that include this text.
#pragma once

#include "quantise/add_to_lse.cuh"
#include "quantise/append.cuh"
#include "quantise/launch.cuh"

namespace fp8_sdpa::quantiser {

template Status launch<gpu::kBackend>(const Quantisation&, const Device&, void*, const gpu::Queue&);
template Status launch_slabs<gpu::kBackend>(std::span<const Quantisation>, const Device&, void*,
                                            const gpu::Queue&);
template Status append<gpu::kBackend>(const Append&, const gpu::Queue&);
template Status add_to_lse<gpu::kBackend>(float*, const float*, float, std::int64_t,
                                          const gpu::Queue&);

}  // namespace fp8_sdpa::quantiser
