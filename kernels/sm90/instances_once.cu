// The sm90_once kernels, for one backend. nvcc compiles this file for the device;
// instances_once_host.cpp gives the same text to the host compiler for the host executor.
#include "sm90/launch.cuh"

namespace fp8_sdpa::sm90 {

template Status prepare<tag::sm90_once, gpu::kBackend>(const Problem&, const Device&,
                                                       const PlanOptions&, detail::PlanState&);
template Status launch<tag::sm90_once, gpu::kBackend>(const detail::PlanState&, void*,
                                                      const gpu::Queue&);

}  // namespace fp8_sdpa::sm90
