// wmma on the host executor beyond its arithmetic, which the conformance cases cover.
#include <array>
#include <set>

#include "tests/gpu_model/support.hpp"

namespace gpu_model {
namespace {

namespace wmma = gpu::wmma;

constexpr int kDim = 16;

using Accumulator = wmma::fragment<wmma::accumulator, kDim, kDim, kDim, float>;
using MatrixA = wmma::fragment<wmma::matrix_a, kDim, kDim, kDim, __half, wmma::row_major>;

struct Matrix {
  alignas(32) float at[kDim * kDim];
};

using Layout = std::array<float, kDim * kDim>;

/// Which element each lane holds where: the accumulator of a matrix of its own indices.
Layout layout_of(std::uint64_t seed) {
  Layout layout{};
  const auto status = run_kernel<32, Matrix>(
      [](void* data, Matrix& shared) {
        for (int i = gpu::lane_idx(); i < kDim * kDim; i += 32)
          shared.at[i] = static_cast<float>(i);
        gpu::sync_warp();
        Accumulator c;
        wmma::load_matrix_sync(c, shared.at, kDim, wmma::mem_row_major);
        for (int i = 0; i < c.num_elements; ++i) {
          (*static_cast<Layout*>(data))[gpu::lane_idx() * c.num_elements + i] = c.x[i];
        }
      },
      &layout, {.seed = seed, .os_threads = 1});
  EXPECT_TRUE(status.ok()) << status.message();
  return layout;
}

TEST(Wmma, EveryElementHasOneHolder) {
  const Layout layout = layout_of(1);
  EXPECT_EQ(std::set<float>(layout.begin(), layout.end()).size(), layout.size());
}

TEST(Wmma, LayoutIsAsOpaqueAsTheSeed) {
  EXPECT_EQ(layout_of(1), layout_of(1));
  EXPECT_NE(layout_of(1), layout_of(2));
}

TEST(Wmma, RefusesMisalignedMatrices) {
  const int line = __LINE__ + 3;
  const auto pointer = run_kernel<32, Matrix>([](void*, Matrix& shared) {
    Accumulator c;
    wmma::load_matrix_sync(c, shared.at + 4, kDim, wmma::mem_row_major);
  });
  expect_kernel_error(pointer, {"wmma::load_matrix_sync", "32 bytes", "thread 0",
                                "wmma_test.cpp:" + std::to_string(line)});
  const auto stride = run_kernel<32, Matrix>([](void*, Matrix& shared) {
    Accumulator c;
    wmma::fill_fragment(c, 0.0F);
    wmma::store_matrix_sync(shared.at, c, kDim + 1, wmma::mem_row_major);
  });
  expect_kernel_error(stride, {"wmma::store_matrix_sync", "16 bytes", "wmma_test.cpp:"});
}

TEST(Wmma, AMultiplyNeedsTheWholeWarp) {
  const auto status = run_kernel<32, Matrix>([](void*, Matrix&) {
    if (gpu::lane_idx() == 9) return;
    MatrixA a;
    wmma::fragment<wmma::matrix_b, kDim, kDim, kDim, __half, wmma::col_major> b;
    Accumulator c;
    wmma::fill_fragment(a, gpu::float_to_half(0.0F));
    wmma::fill_fragment(b, gpu::float_to_half(0.0F));
    wmma::fill_fragment(c, 0.0F);
    wmma::mma_sync(c, a, b, c);
  });
  expect_kernel_error(status, {"lane", "9", "wmma::mma_sync"});
}

}  // namespace
}  // namespace gpu_model
