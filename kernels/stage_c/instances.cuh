// Launch functions of the Stage C variants of part FP8_SDPA_INSTANCE of variants.def, for one
// backend: parts, so that a build uses more than one core. The build writes a file for nvcc and one
// for the host compiler that include this text.
#pragma once

#include "stage_c/kernel.cuh"
#include "stage_c/stage_c.hpp"

namespace fp8_sdpa::stage_c {

template <class Tag, Backend kBackend>
Status launch(const Problem& problem, const gpu::Queue& queue) {
  return gpu::launch<Kernel<Tag>>(dim3(attention::forward_blocks(problem, kTileM)),
                                  attention::forward_params(problem, kTileM), queue);
}

#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...) \
  template Status launch<tag::NAME, gpu::kBackend>(const Problem&, const gpu::Queue&);
#define FP8_SDPA_STAGE_C_PART FP8_SDPA_INSTANCE
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_PART
#undef FP8_SDPA_STAGE_C_VARIANT

}  // namespace fp8_sdpa::stage_c
