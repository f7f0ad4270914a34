// The logged kernels, for one backend. The build writes a file for nvcc and one for the host
// compiler that include this text.
#pragma once

#include "traced/kernels.hpp"
#include "traced/traced.hpp"

namespace fp8_sdpa::traced {

template <class Tag, Backend kBackend>
Status launch(const Problem& problem, const attention::PhaseSink& sink, const gpu::Queue& queue) {
  attention::LoggedParams<true> params{attention::forward_params(problem, Tag::kTileM), sink};
  return gpu::launch<typename Tag::Kernel>(dim3(attention::forward_blocks(problem, Tag::kTileM)),
                                           params, queue);
}

#define FP8_SDPA_TRACED_STAGE_C(NAME)                                                           \
  template Status launch<tag::NAME, gpu::kBackend>(const Problem&, const attention::PhaseSink&, \
                                                   const gpu::Queue&);
#define FP8_SDPA_TRACED(FAMILY, NAME) FP8_SDPA_TRACED_STAGE_C(NAME)
#include "traced/variants.def"
#undef FP8_SDPA_TRACED
#undef FP8_SDPA_TRACED_STAGE_C

}  // namespace fp8_sdpa::traced
