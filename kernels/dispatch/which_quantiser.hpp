// Which of the two quantisers takes a tensor.
#pragma once

#include "dispatch/compiled_archs.hpp"
#include "quantise/params.hpp"

namespace fp8_sdpa::detail {

/// Code for sm_90a runs nowhere else.
inline constexpr int kSmVersionOfSlabs = 90;

/// Whether the device runs the one of slabs (quantise/slabs.cuh).
inline bool runs_slabs(const Device& device) {
  return device.sm_version == kSmVersionOfSlabs &&
         check_has_code("", kSmVersionOfSlabs, device).ok();
}

/// It has one pass, where a descale needs no other rows than a slab's.
inline bool is_of_slabs(const Quantisation& q, const Device& device) {
  return (q.block_rows != 0 || q.static_descales) && runs_slabs(device) &&
         quantiser::has_slabs(q.from, q.seq);
}

/// Of a quantisation that has been checked.
template <Backend kBackend>
Status launch_quantisation(const Quantisation& q, const Device& device, void* workspace,
                           const gpu::Queue& queue) {
  if (is_of_slabs(q, device)) {
    return quantiser::launch_slabs<kBackend>({&q, 1}, device, workspace, queue);
  }
  return quantiser::launch<kBackend>(q, device, workspace, queue);
}

}  // namespace fp8_sdpa::detail
