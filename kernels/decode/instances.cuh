// The decode kernels of one head_dim, FP8_SDPA_INSTANCE, for one backend. The build writes a file
// for nvcc and one for the host compiler that include this text.
#include "decode/launch.cuh"

namespace fp8_sdpa::decode {

template Status launch_dim<FP8_SDPA_INSTANCE, gpu::kBackend>(const detail::PlanState&, void*,
                                                             const gpu::Queue&);

}  // namespace fp8_sdpa::decode
