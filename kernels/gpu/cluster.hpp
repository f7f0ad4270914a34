// Clusters: neighbouring blocks that run at the same time and read each other's shared memory. PTX
// ISA, "barrier.cluster", "mapa". A kernel says `static constexpr int kClusterBlocks` (up to 8);
// the cluster's blocks are neighbours along x, of which the grid has a multiple.
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if GPU_ON_DEVICE
#include "gpu/cp_async.hpp"
#else
#include "gpu/host/executor/cluster.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// An address in the shared memory of a block of the cluster.
struct ClusterAddress {
  std::uint32_t value;
};

/// %cluster_ctarank (PTX ISA, "Special Registers"; sm_90): this block in its cluster, from 0.
GPU_FN int cluster_rank() {
#if GPU_ON_DEVICE
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return host::cluster_rank();
#endif
}

/// barrier.cluster.arrive.release.aligned (PTX ISA, "barrier.cluster"; sm_90): counts this warp at
/// the cluster's barrier and goes on. Each arrive has a wait before the next one.
GPU_FN void cluster_arrive([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  host::cluster_arrive(loc);
#endif
}

/// barrier.cluster.wait.acquire.aligned (PTX ISA, "barrier.cluster"; sm_90): waits until every
/// thread of the cluster that has not exited has arrived; sees what they did before that.
GPU_FN void cluster_wait([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  host::cluster_wait(loc);
#endif
}

/// mapa.shared::cluster.u32 (PTX ISA, "mapa"; sm_90): where block `rank` has what is at `shared`
/// here.
GPU_FN ClusterAddress cluster_address(const void* shared, int rank,
                                      [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  ClusterAddress mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(mapped.value)
               : "r"(shared_address(shared)), "r"(rank));
  return mapped;
#else
  return {host::cluster_address(shared, rank, loc)};
#endif
}

/// ld.shared::cluster.f32 (PTX ISA, "ld"; sm_90). The block that owns the memory has not exited: a
/// cluster barrier follows the last load.
GPU_FN float load_cluster_float(ClusterAddress address, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address.value) : "memory");
  return value;
#else
  return *static_cast<const float*>(host::cluster_memory(address.value, sizeof(float), loc));
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu
