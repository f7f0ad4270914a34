// Puts into each row's LSE what smoothing of K has taken off its scores: softmax_scale * q . mean.
#pragma once

#include <cstdint>

#include "gpu/gpu.hpp"
#include "quantise/params.hpp"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

struct AddToLse {
  struct Params {
    float* lse;
    const float* dots;
    float scale;
    std::int64_t rows;
  };
  struct Shared {};
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 1;

  GPU_FN static void run(const Params& p, Shared& /*shared*/) {
    const std::int64_t row = std::int64_t{gpu::block_idx().x} * kThreads + gpu::thread_idx();
    // -inf, of a row without keys, stays.
    if (row < p.rows) p.lse[row] = gpu::fma(p.scale, p.dots[row], p.lse[row]);
  }
};

}  // namespace GPU_BACKEND

template <Backend kBackend>
Status add_to_lse(float* lse, const float* dots, float scale, std::int64_t rows,
                  const gpu::Queue& queue) {
  const std::int64_t blocks = (rows + AddToLse::kThreads - 1) / AddToLse::kThreads;
  return gpu::launch<AddToLse>(dim3(static_cast<unsigned>(blocks)), {lse, dots, scale, rows},
                               queue);
}

}  // namespace fp8_sdpa::quantiser
