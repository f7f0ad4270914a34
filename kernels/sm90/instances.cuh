// One kernel of tile_shapes.def, FP8_SDPA_INSTANCE, for one backend. The build writes a file for
// nvcc and one for the host compiler that include this text.
#include "sm90/launch.cuh"

namespace fp8_sdpa::sm90 {

template Status prepare<tag::FP8_SDPA_INSTANCE, gpu::kBackend>(const Problem&, const Device&,
                                                               const PlanOptions&,
                                                               detail::PlanState&);
template Status launch<tag::FP8_SDPA_INSTANCE, gpu::kBackend>(const detail::PlanState&, void*,
                                                              const gpu::Queue&);

}  // namespace fp8_sdpa::sm90
