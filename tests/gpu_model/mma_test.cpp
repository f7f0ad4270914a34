// ldmatrix and mma on the host executor beyond their arithmetic, which the conformance cases cover.
#include "tests/gpu_model/support.hpp"

namespace gpu_model {
namespace {

struct Rows {
  alignas(16) std::uint16_t at[32][8];
};

TEST(Ldmatrix, RefusesAMisalignedRow) {
  const int line = __LINE__ + 4;
  const auto status = run_kernel<32, Rows>([](void*, Rows& rows) {
    std::uint32_t r[4];
    const int skew = gpu::lane_idx() == 5 ? 1 : 0;
    gpu::ldmatrix_x4(r, &rows.at[gpu::lane_idx()][4 * skew]);
  });
  expect_kernel_error(status, {"ldmatrix_x4", "not a multiple of 16 bytes", "thread 5",
                               "mma_test.cpp:" + std::to_string(line)});
}

TEST(Ldmatrix, RefusesARowOutsideSharedMemory) {
  const int line = __LINE__ + 6;
  alignas(16) static std::uint16_t elsewhere[8];
  const auto status = run_kernel<32, Rows>(
      [](void* data, Rows& rows) {
        std::uint32_t r[4];
        const void* row = gpu::lane_idx() == 31 ? data : &rows.at[gpu::lane_idx()];
        gpu::ldmatrix_x4_trans(r, row);
      },
      elsewhere);
  expect_kernel_error(status, {"ldmatrix_x4_trans", "outside the block's shared memory",
                               "thread 31", "mma_test.cpp:" + std::to_string(line)});
}

TEST(Ldmatrix, NeedsTheWholeWarp) {
  const auto status = run_kernel<32, Rows>([](void*, Rows& rows) {
    std::uint32_t r[4];
    if (gpu::lane_idx() < 16) gpu::ldmatrix_x4(r, &rows.at[gpu::lane_idx()]);
  });
  expect_kernel_error(status, {"ldmatrix_x4", "lanes 0-15"});
}

TEST(Mma, NeedsTheWholeWarp) {
  const auto status = run_kernel<32>([](void*, NoShared&) {
    float d[4] = {};
    const std::uint32_t a[4] = {};
    const std::uint32_t b[2] = {};
    if (gpu::lane_idx() != 3) gpu::mma_m16n8k16(d, a, b);
  });
  expect_kernel_error(status, {"thread 3 (warp 0, lane 3) exits", "lanes 0-2", "mma_m16n8k16"});
}

TEST(Mma, LanesMayNotDisagreeAboutTheInstruction) {
  const auto status = run_kernel<32>([](void*, NoShared&) {
    float d[4] = {};
    const std::uint32_t a[4] = {};
    const std::uint32_t b[2] = {};
    if (gpu::lane_idx() % 2 == 0) {
      gpu::mma_m16n8k32<gpu::Fp8::kE4M3, gpu::Fp8::kE4M3>(d, a, b);
    } else {
      gpu::mma_m16n8k32<gpu::Fp8::kE5M2, gpu::Fp8::kE4M3>(d, a, b);
    }
  });
  expect_kernel_error(status, {"mma_m16n8k32", "divergent warp"});
}

// A NaN or an infinity in one element reaches its row or column, and no other.
TEST(Mma, NanStaysInItsRow) {
  float out[32][4];
  const auto status = run_kernel<32>(
      [](void* data, NoShared&) {
        constexpr std::uint32_t kNanAndZero = 0x7fff;
        float d[4] = {};
        const std::uint32_t a[4] = {gpu::lane_idx() == 0 ? kNanAndZero : 0, 0, 0, 0};
        const std::uint32_t b[2] = {};
        gpu::mma_m16n8k16(d, a, b);
        for (int i = 0; i < 4; ++i) static_cast<float(*)[4]>(data)[gpu::lane_idx()][i] = d[i];
      },
      out);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const bool row_zero = lane / 4 == 0 && i < 2;
      EXPECT_EQ(out[lane][i] != out[lane][i], row_zero) << "lane " << lane << " element " << i;
    }
  }
}

}  // namespace
}  // namespace gpu_model
