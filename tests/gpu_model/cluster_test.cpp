// Clusters on the host executor: what is refused, and that one block's error ends the others.
#include <vector>

#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model {
namespace {

using fp8_sdpa::ExecutorOptions;

constexpr int kBlocks = 2;
constexpr int kThreads = 64;

/// As KernelOf, in clusters of two blocks.
template <class Body>
struct ClusterKernelOf : KernelOf<Body, kThreads, float[kThreads]> {
  static constexpr int kClusterBlocks = kBlocks;
};

/// Runs a body `void(void* data, float (&)[kThreads])` on two clusters.
template <class Body>
Run on_clusters(Body, unsigned blocks = 2 * kBlocks) {
  return [blocks](const ExecutorOptions& options) {
    return gpu::launch<ClusterKernelOf<Body>>(dim3(blocks), {nullptr}, {.executor = &options});
  };
}

GPU_FN void sync_cluster() {
  gpu::cluster_arrive();
  gpu::cluster_wait();
}

GPU_FN float neighbour(float (&shared)[kThreads]) {
  const int other = 1 - gpu::cluster_rank();
  return gpu::load_cluster_float(gpu::cluster_address(&shared[gpu::thread_idx()], other));
}

TEST(Clusters, SeeLoadsFromABlockThatHasExited) {
  int found = 0;
  for (const auto& options : adversaries(5)) {
    const auto status = on_clusters([](void*, float(&shared)[kThreads]) {
      shared[gpu::thread_idx()] = 1;
      sync_cluster();
      static_cast<void>(neighbour(shared));
    })(options);
    if (status.ok()) continue;
    ++found;
    expect_kernel_error(status, {"load_cluster_float", "has exited", "cluster_test.cpp:"});
  }
  EXPECT_GT(found, 0);
}

TEST(Clusters, WaitForEachOther) {
  expect_error_always(on_clusters([](void*, float(&)[kThreads]) {
                        if (gpu::cluster_rank() == 1) gpu::named_barrier_sync(1, 64);
                        if (gpu::warp_idx() == 0) sync_cluster();
                        if (gpu::cluster_rank() == 0) gpu::named_barrier_sync(1, 64);
                      }),
                      {"deadlock", "named_barrier_sync(1, 64)", "cluster_test.cpp:"});
}

TEST(Clusters, ExitedThreadsAreNotWaitedFor) {
  for (const auto& options : adversaries(3)) {
    const auto status = on_clusters([](void*, float(&)[kThreads]) {
      if (gpu::warp_idx() == 1) return;
      sync_cluster();
      if (gpu::cluster_rank() == 1) return;
      sync_cluster();
    })(options);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Clusters, RefuseTwoArrivalsAndWaitsForNothing) {
  expect_error_always(on_clusters([](void*, float(&)[kThreads]) {
                        gpu::cluster_arrive();
                        gpu::cluster_arrive();
                      }),
                      {"cluster_arrive", "twice", "cluster_test.cpp:"});
  expect_error_always(on_clusters([](void*, float(&)[kThreads]) { gpu::cluster_wait(); }),
                      {"cluster_wait", "no cluster_arrive", "cluster_test.cpp:"});
}

TEST(Clusters, RefuseAddressesThatNoBlockHas) {
  expect_error_always(on_clusters([](void*, float(&shared)[kThreads]) {
                        static_cast<void>(gpu::cluster_address(shared, 2));
                      }),
                      {"cluster_address", "block 2 of a cluster of 2"});
  expect_error_always(on_clusters([](void*, float(&)[kThreads]) {
                        float local = 0;
                        static_cast<void>(gpu::cluster_address(&local, 0));
                      }),
                      {"cluster_address", "not an address in the block's shared memory"});
}

TEST(Clusters, RefuseAGridThatTheyDoNotDivide) {
  const ExecutorOptions options{.os_threads = 1};
  const auto status = on_clusters([](void*, float(&)[kThreads]) {}, 3)(options);
  EXPECT_EQ(status.code(), fp8_sdpa::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("clusters of 2 blocks in a grid of 3"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace gpu_model
