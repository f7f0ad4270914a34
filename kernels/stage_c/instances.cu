// One launch function per Stage C variant. nvcc compiles this file for the device;
// instances_host.cpp gives the same text to the host compiler for the host executor.
#include "gpu/gpu.hpp"
#include "stage_c/kernel.cuh"
#include "stage_c/stage_c.hpp"

namespace fp8_sdpa::stage_c {
namespace {

template <class T>
const T* data_of(const Tensor& tensor) {
  return static_cast<const T*>(tensor.data);
}

Params params_of(const Problem& problem) {
  Params p{};
  p.q = data_of<std::uint8_t>(problem.q);
  p.k = data_of<std::uint8_t>(problem.k);
  p.v = data_of<std::uint8_t>(problem.v);
  p.o = problem.o.data;
  p.lse = problem.lse;
  p.descale_q = problem.descales.q;
  p.descale_k = problem.descales.k;
  p.descale_v = problem.descales.v;
  p.q_strides = attention::strides_of(problem.q);
  p.k_strides = attention::strides_of(problem.k);
  p.v_strides = attention::strides_of(problem.v);
  p.o_strides = attention::strides_of(problem.o);
  p.heads = problem.heads_q;
  p.seq_q = static_cast<int>(problem.seq_q);
  p.seq_kv = static_cast<int>(problem.seq_kv);
  p.tiles_m = (p.seq_q + kTileM - 1) / kTileM;
  p.softmax_scale_log2 = problem.softmax_scale * attention::kLog2E;
  p.input = problem.q.dtype;
  p.output = problem.o.dtype;
  return p;
}

}  // namespace

template <class Tag, Backend kBackend>
Status launch(const Problem& problem, const gpu::Queue& queue) {
  const Params params = params_of(problem);
  const auto blocks = static_cast<unsigned>(params.tiles_m) * static_cast<unsigned>(problem.batch) *
                      static_cast<unsigned>(problem.heads_q);
  return gpu::launch<Kernel<Tag>>(dim3(blocks), params, queue);
}

#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...) \
  template Status launch<tag::NAME, gpu::kBackend>(const Problem&, const gpu::Queue&);
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_VARIANT

}  // namespace fp8_sdpa::stage_c
