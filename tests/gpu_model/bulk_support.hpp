// Bodies of a warp that load from global memory in bulk.
#pragma once

#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model {

inline constexpr int kPlaces = 512;

/// Where bytes land; the barrier counts one arrival.
struct Place {
  alignas(1024) unsigned char at[kPlaces];
  gpu::MBarrier full;
};

/// Runs a body `void(World&, Place&)` on blocks of a warp; World is global memory.
template <class Body, class World>
fp8_sdpa::Status run_with(Body, World& world, const fp8_sdpa::ExecutorOptions& options,
                          unsigned blocks = 1) {
  return run_kernel<32, Place>(
      [](void* data, Place& sm) {
        if (gpu::thread_idx() == 0) {
          gpu::mbarrier_init(sm.full, 1);
          gpu::fence_mbarrier_init();
        }
        gpu::sync_warp();
        Body{}(*static_cast<World*>(data), sm);
      },
      &world, options, dim3(blocks));
}

/// The same on a World of its own.
template <class World, class Body>
Run on_a_warp_with(Body body) {
  return [body](const fp8_sdpa::ExecutorOptions& options) {
    World world;
    return run_with(body, world, options);
  };
}

}  // namespace gpu_model
