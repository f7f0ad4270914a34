// The quantiser's kernels, for one backend. The build writes a file for nvcc and one for the host
// compiler that include this text.
#pragma once

#include "quantise/launch.cuh"

namespace fp8_sdpa::quantiser {

template Status launch<gpu::kBackend>(const Quantisation&, const Device&, void*, const gpu::Queue&);

}  // namespace fp8_sdpa::quantiser
