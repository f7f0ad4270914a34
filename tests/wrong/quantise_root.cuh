// What a fault of the quantiser is called by: the launch of a plan by one kernel.
#pragma once

#include "dispatch/which_quantiser.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "quantise/add_to_lse.cuh"
#include "quantise/append.cuh"
#include "quantise/launch.cuh"

namespace fp8_sdpa::quantiser {

namespace tag {
struct quantise_bf16_d64 {
  static constexpr Dtype kFrom = Dtype::kBFloat16;
  static constexpr int kDim = 64;
};
struct quantise_half_d256 {
  static constexpr Dtype kFrom = Dtype::kHalf;
  static constexpr int kDim = 256;
};
struct quantise_float_d128 {
  static constexpr Dtype kFrom = Dtype::kFloat;
  static constexpr int kDim = 128;
};
}  // namespace tag

template <class Tag>
Status launch_plan(const QuantisePlan& plan, void* workspace) {
  const Quantisation& q = plan.quantisation();
  const gpu::Queue queue{nullptr, plan.device().executor.get()};
  if (detail::is_of_slabs(q, plan.device())) {
    return launch_slabs_kernel<Tag::kFrom, Tag::kDim>({&q, 1}, plan.device(), workspace, queue);
  }
  return launch_kernel<Tag::kFrom, Tag::kDim>(q, plan.device(), workspace, queue);
}

}  // namespace fp8_sdpa::quantiser
