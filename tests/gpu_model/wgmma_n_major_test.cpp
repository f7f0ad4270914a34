// wgmma of 16 bits, whose B is N-major, on the host executor beyond its arithmetic.
#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model::wgmma_n_major {
namespace {

using fp8_sdpa::ExecutorOptions;
using gpu::Swizzle;

constexpr int kRegisters = 16 / 2;  ///< of N = 16

/// Rows of k of an N-major B: one panel.
struct NMajorTiles {
  alignas(1024) std::uint8_t b[16 * 128];
};
template <class Body>
Run on_n_major(Body body) {
  return [body](const ExecutorOptions& options) {
    float out[128][kRegisters] = {};
    return run_kernel<128, NMajorTiles>(body, out, options);
  };
}
GPU_FN void fill(NMajorTiles& sm) {
  for (int i = gpu::thread_idx(); i < 16 * 128; i += 128) sm.b[i] = 0;
  gpu::fence_proxy_async();
  gpu::sync_block();
}
GPU_FN void multiply_n_major(float (&d)[kRegisters], const std::uint32_t (&a)[4],
                             const NMajorTiles& sm, Swizzle swizzle, gpu::Loc loc = GPU_LOC) {
  const auto b = gpu::matrix_descriptor(sm.b, 1024, 0, swizzle);
  gpu::wgmma_m64k16<gpu::Float16::kHalf>(d, a, b, false, loc);
}

TEST(WgmmaNMajor, SeesWhatIsWrongWithB) {
  expect_error_always(on_n_major([](void*, NMajorTiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        const std::uint32_t a[4] = {};
                        gpu::wgmma_fence();
                        multiply_n_major(d, a, sm, Swizzle::k64B);
                      }),
                      {"matrix B is N-major", "the swizzle of 128 bytes"});
  expect_error_always(on_n_major([](void*, NMajorTiles& sm) {
                        fill(sm);
                        if (gpu::thread_idx() == 0) sm.b[9 * 128 + 16] = 1;  // chunk 1 ^ 1 of row 9
                        gpu::sync_block();
                        float d[kRegisters];
                        const std::uint32_t a[4] = {};
                        gpu::wgmma_fence();
                        multiply_n_major(d, a, sm, Swizzle::k128B);
                      }),
                      {"matrix B", "no fence_proxy_async", "row 9"});
}

TEST(WgmmaNMajor, SeesAWriteToBBeforeTheWait) {
  if (kRacesReported) GTEST_SKIP() << "the race is ThreadSanitizer's to report";
  expect_error_always(on_n_major([](void*, NMajorTiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        const std::uint32_t a[4] = {};
                        gpu::wgmma_fence();
                        multiply_n_major(d, a, sm, Swizzle::k128B);
                        gpu::wgmma_commit();
                        gpu::sync_block();  // all have issued
                        if (gpu::thread_idx() == 0) sm.b[0] = 1;
                        gpu::sync_block();
                        gpu::wgmma_wait<0>();
                      }),
                      {"matrix B", "was written before the wait"});
}

}  // namespace
}  // namespace gpu_model::wgmma_n_major
