// The sm90_prepared kernels, for one backend. nvcc compiles this file for the device;
// instances_prepared_host.cpp gives the same text to the host compiler for the host executor.
#include "sm90/launch.cuh"

namespace fp8_sdpa::sm90 {

template Status prepare<tag::sm90_prepared, gpu::kBackend>(const Problem&, const Device&,
                                                           const PlanOptions&, detail::PlanState&);
template Status launch<tag::sm90_prepared, gpu::kBackend>(const detail::PlanState&, void*,
                                                          const gpu::Queue&);

}  // namespace fp8_sdpa::sm90
