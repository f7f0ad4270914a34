// wgmma on the host executor beyond its arithmetic: order, operands, accumulators, whole
// warpgroups.
#include <cmath>

#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model::wgmma {
namespace {

using fp8_sdpa::ExecutorOptions;
using fp8_sdpa::TensorCoreSums;
using gpu::Fp8;
using gpu::Swizzle;

constexpr int kN = 16;
constexpr int kRegisters = kN / 2;
constexpr std::uint8_t kOne = 0x38;  ///< E4M3

/// Rows of 32 bytes: one step of k.
struct Tiles {
  alignas(1024) std::uint8_t a[64 * 32];
  alignas(1024) std::uint8_t b[kN * 32];
  gpu::MBarrier full;
};

/// Runs a body on a warpgroup.
template <class Body>
Run on_a_warpgroup(Body body) {
  return [body](const ExecutorOptions& options) {
    float out[128][kRegisters] = {};
    return run_kernel<128, Tiles>(body, out, options);
  };
}

GPU_FN std::uint64_t matrix_a(const Tiles& sm) {
  return gpu::matrix_descriptor(sm.a, 256, 0, Swizzle::k32B);
}
GPU_FN std::uint64_t matrix_b(const Tiles& sm) {
  return gpu::matrix_descriptor(sm.b, 256, 0, Swizzle::k32B);
}

/// Both matrices to ones, known to the async proxy.
GPU_FN void fill(Tiles& sm) {
  for (int i = gpu::thread_idx(); i < 64 * 32; i += 128) sm.a[i] = kOne;
  for (int i = gpu::thread_idx(); i < kN * 32; i += 128) sm.b[i] = kOne;
  gpu::fence_proxy_async();
  gpu::sync_block();
}

GPU_FN void multiply(float (&d)[kRegisters], const Tiles& sm, bool accumulate = false,
                     gpu::Loc loc = GPU_LOC) {
  gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, matrix_a(sm), matrix_b(sm), accumulate, loc);
}

TEST(WgmmaOrder, ResultsShowAtTheWaitOrAtOnce) {
  for (const auto asynchrony : kAsynchronies) {
    float out[128][2];
    const auto status = run_kernel<128, Tiles>(
        [](void* data, Tiles& sm) {
          fill(sm);
          float d[kRegisters];
          gpu::wgmma_fence();
          multiply(d, sm);
          gpu::wgmma_commit();
          auto& mine = static_cast<float(*)[2]>(data)[gpu::thread_idx()];
          mine[0] = d[3];
          gpu::wgmma_wait<0>();
          mine[1] = d[3];
        },
        out, {.asynchrony = asynchrony, .os_threads = 1});
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto& [early, late] : out) {
      EXPECT_EQ(std::isnan(early), asynchrony == fp8_sdpa::Asynchrony::kLate);
      EXPECT_EQ(late, 32);
    }
  }
}

TEST(WgmmaOrder, AWaitLeavesTheYoungestGroupsInFlight) {
  float out[128][2];
  const auto status = run_kernel<128, Tiles>(
      [](void* data, Tiles& sm) {
        fill(sm);
        float older[kRegisters];
        float younger[kRegisters];
        gpu::wgmma_fence();
        multiply(older, sm);
        gpu::wgmma_commit();
        multiply(younger, sm);
        multiply(younger, sm, true);
        gpu::wgmma_commit();
        gpu::wgmma_wait<1>();
        auto& mine = static_cast<float(*)[2]>(data)[gpu::thread_idx()];
        mine[0] = older[0];
        mine[1] = younger[0];
        gpu::wgmma_wait<0>();
        mine[0] += younger[0];
      },
      out);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const auto& [sum, early] : out) {
    EXPECT_EQ(sum, 32 + 64);
    EXPECT_TRUE(std::isnan(early));
  }
}

TEST(WgmmaOrder, SeesThatNoFenceComesFirst) {
  const int line = __LINE__ + 4;
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        multiply(d, sm);
                      }),
                      {"wgmma", "no wgmma_fence", at_line(line)});
}

TEST(WgmmaOrder, SeesThatDWasTouchedWithNoFence) {
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        gpu::wgmma_fence();
                        for (int i = 0; i < 2; ++i) {
                          multiply(d, sm, i > 0);
                          gpu::wgmma_commit();
                          gpu::wgmma_wait<0>();
                          for (float& x : d) x *= 0.5F;
                        }
                      }),
                      {"d has been touched", "wgmma_fence", "wgmma_test.cpp:"});
}

TEST(WgmmaOrder, SeesThatDWasTouchedAfterTheFence) {
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        for (int i = 0; i < 2; ++i) {
                          gpu::wgmma_fence();
                          if (i > 0) d[2] = 7;
                          multiply(d, sm, i > 0);
                          gpu::wgmma_commit();
                          gpu::wgmma_wait<0>();
                        }
                      }),
                      {"d has been touched", "wgmma_fence", "wgmma_test.cpp:"});
}

TEST(WgmmaOrder, SeesThatAWasWrittenWithNoFence) {
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        std::uint32_t a[4] = {};
                        gpu::wgmma_fence();
                        for (int i = 0; i < 2; ++i) {
                          gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, a, matrix_b(sm), i > 0);
                          gpu::wgmma_commit();
                          gpu::wgmma_wait<0>();
                          a[1] = 0x38383838;
                        }
                      }),
                      {"the registers of A were written with no wgmma_fence", "wgmma_test.cpp:"});
}

TEST(WgmmaOperands, SeesWritesBeforeTheWait) {
  if (kRacesReported) GTEST_SKIP() << "the race is ThreadSanitizer's to report";
  const auto run = [](auto change) {
    return on_a_warpgroup([](void*, Tiles& sm) {
      fill(sm);
      float d[kRegisters];
      std::uint32_t a[4] = {};
      gpu::wgmma_fence();
      gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, matrix_a(sm), matrix_b(sm), false);
      gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, a, matrix_b(sm), true);
      gpu::wgmma_commit();
      gpu::sync_block();  // all have issued
      decltype(change){}(sm, d, a);
      gpu::sync_block();
      gpu::wgmma_wait<0>();
    });
  };
  const std::string at = "was written before the wait that covers it";
  expect_error_always(run([](Tiles& sm, auto&, auto&) {
                        if (gpu::thread_idx() == 0) sm.a[50 * 32] = 0;
                      }),
                      {"wgmma_wait", "matrix A", at, "wgmma_test.cpp:"});
  expect_error_always(run([](Tiles& sm, auto&, auto&) {
                        if (gpu::thread_idx() == 0) sm.b[9 * 32 + 31] = 0;
                      }),
                      {"wgmma_wait", "matrix B", at});
  expect_error_always(run([](Tiles&, auto&, auto& a) {
                        if (gpu::thread_idx() == 77) a[2] = 1;
                      }),
                      {"wgmma_wait", "a register of A", at});
  expect_error_always(run([](Tiles&, auto& d, auto&) {
                        if (gpu::thread_idx() == 77) d[5] = 1;
                      }),
                      {"wgmma_wait", "d of the multiply", at});
}

TEST(WgmmaOperands, SeesAMissingProxyFence) {
  const int line = __LINE__ + 6;
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        if (gpu::thread_idx() == 0) sm.b[40] = 0;
                        gpu::sync_block();
                        float d[kRegisters];
                        gpu::wgmma_fence();
                        multiply(d, sm);
                      }),
                      {"matrix B", "no fence_proxy_async", "row 1", at_line(line + 1)});
}

TEST(WgmmaOperands, SeesAMatrixOutsideSharedMemory) {
  expect_error_always(
      on_a_warpgroup([](void*, Tiles& sm) {
        fill(sm);
        float d[kRegisters];
        gpu::wgmma_fence();
        const auto b = gpu::matrix_descriptor(sm.b, 1024, 0, Swizzle::k32B);
        gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, matrix_a(sm), b, false);
      }),
      {"matrix B is not inside the block's shared memory", "row 8", "wgmma_test.cpp:"});
  expect_error_always(on_a_warpgroup([](void*, Tiles&) {
                        static std::uint8_t elsewhere[16];
                        static_cast<void>(gpu::matrix_descriptor(elsewhere, 256, 0, Swizzle::k32B));
                      }),
                      {"matrix_descriptor", "not an address in the block's shared memory"});
}

TEST(WgmmaOperands, RefusesDescriptorsThatCannotBe) {
  const auto run = [](auto describe) {
    return on_a_warpgroup([](void*, Tiles& sm) { static_cast<void>(decltype(describe){}(sm)); });
  };
  expect_error_always(
      run([](Tiles& sm) { return gpu::matrix_descriptor(sm.a + 8, 256, 0, Swizzle::k32B); }),
      {"matrix_descriptor", "multiple of 16 bytes", "wgmma_test.cpp:"});
  expect_error_always(
      run([](Tiles& sm) { return gpu::matrix_descriptor(sm.a + 128, 256, 0, Swizzle::k32B); }),
      {"matrix_descriptor", "first row of a swizzle pattern"});
  expect_error_always(
      run([](Tiles& sm) { return gpu::matrix_descriptor(sm.a, 1 << 18, 0, Swizzle::k32B); }),
      {"matrix_descriptor", "stride"});
}

TEST(WgmmaOperands, SeesALoadInFlight) {
  alignas(16) static std::uint8_t memory[kN * 32] = {};
  gpu::TensorShape shape = byte_matrix(memory, kN, 32, kN);
  const int line = __LINE__ + 8;
  const auto run = [&](const ExecutorOptions& options) {
    return run_mapped<128, Tiles>(
        [](const gpu::TensorMap& map, void*, Tiles& sm) {
          fill(sm);
          if (gpu::thread_idx() == 0) {
            gpu::mbarrier_init(sm.full, 2);
            gpu::fence_mbarrier_init();
            gpu::tma_load_2d(sm.b, map, sm.full, 0, 0);
          }
          gpu::sync_block();
          float d[kRegisters];
          gpu::wgmma_fence();
          multiply(d, sm);
        },
        shape, nullptr, options);
  };
  expect_error_always(run, {"matrix B is the destination of the tma_load_2d", at_line(line)}, true);
}

TEST(WgmmaOrder, SeesExitsWithMultipliesInFlight) {
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        gpu::wgmma_fence();
                        multiply(d, sm);
                        gpu::wgmma_commit();
                      }),
                      {"exits with the wgmma issued at", "wgmma_test.cpp:", "wait for it"});
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        gpu::wgmma_fence();
                        multiply(d, sm);
                        gpu::wgmma_wait<0>();
                      }),
                      {"exits with the wgmma issued at", "not committed"});
}

TEST(WgmmaWarpgroup, TakesAllLanesAndWarpsOfIt) {
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        gpu::wgmma_fence();
                        const bool odd = gpu::lane_idx() == 7;
                        gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(
                            d, matrix_a(sm), odd ? matrix_a(sm) : matrix_b(sm), false);
                      }),
                      {"lanes 0 and 7 pass different operands"});
  expect_error_always(on_a_warpgroup([](void*, Tiles& sm) {
                        fill(sm);
                        float d[kRegisters];
                        gpu::wgmma_fence();
                        const bool odd = gpu::warp_idx() == 2;
                        gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(
                            d, matrix_a(sm), odd ? matrix_a(sm) : matrix_b(sm), false);
                        gpu::wgmma_commit();
                        gpu::wgmma_wait<0>();
                      }),
                      {"another warp of the warpgroup issued another multiply"});
  const ExecutorOptions options{.os_threads = 1};
  expect_kernel_error(run_kernel<64, Tiles>(
                          [](void*, Tiles& sm) {
                            float d[kRegisters];
                            gpu::wgmma_fence();
                            multiply(d, sm);
                          },
                          nullptr, options),
                      {"the warp is in no whole warpgroup"});
}

TEST(WgmmaSums, NanAndInfinityStayInTheirElements) {
  float out[128][kRegisters];
  const auto status = run_kernel<128, Tiles>(
      [](void* data, Tiles& sm) {
        constexpr std::uint8_t kNan = 0x7f;
        for (int i = gpu::thread_idx(); i < 64 * 32; i += 128) sm.a[i] = i == 0 ? kNan : kOne;
        for (int i = gpu::thread_idx(); i < kN * 32; i += 128) sm.b[i] = kOne;
        gpu::fence_proxy_async();
        gpu::sync_block();
        auto& d = static_cast<float(*)[kRegisters]>(data)[gpu::thread_idx()];
        gpu::wgmma_fence();
        multiply(d, sm);
        gpu::wgmma_commit();
        gpu::wgmma_wait<0>();
      },
      out);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < kRegisters; ++i) {
      const bool row_zero = t < 4 && i / 2 % 2 == 0;
      EXPECT_EQ(std::isnan(out[t][i]), row_zero) << "thread " << t << " register " << i;
      EXPECT_EQ(row_zero ? 32 : out[t][i], 32);
    }
  }
}

/// 2^13 and a step of 32 products that are each one: within the device's 13 bits only together.
float large_plus_ones(TensorCoreSums sums, float large) {
  struct Data {
    float large;
    float out;
  } data{large, 0};
  const auto status = run_kernel<128, Tiles>(
      [](void* p, Tiles& sm) {
        fill(sm);
        auto& data = *static_cast<Data*>(p);
        float d[kRegisters];
        for (float& x : d) x = data.large;
        gpu::wgmma_fence();
        multiply(d, sm, true);
        gpu::wgmma_commit();
        gpu::wgmma_wait<0>();
        if (gpu::thread_idx() == 0) data.out = d[0];
      },
      &data, {.os_threads = 1, .tensor_core_sums = sums});
  EXPECT_TRUE(status.ok()) << status.message();
  return data.out;
}

TEST(WgmmaSums, HopperDropsWhatLies13BitsBelowTheLargest) {
  EXPECT_EQ(large_plus_ones(TensorCoreSums::kHopper, 0x1p13F), 0x1p13F + 32);
  EXPECT_EQ(large_plus_ones(TensorCoreSums::kHopper, 0x1p14F), 0x1p14F);
  EXPECT_EQ(large_plus_ones(TensorCoreSums::kHopper, 0x1p13F + 0.5F), 0x1p13F + 32);
  EXPECT_EQ(large_plus_ones(TensorCoreSums::kFloat, 0x1p14F), 0x1p14F + 32);
  EXPECT_EQ(large_plus_ones(TensorCoreSums::kFloat, 0x1p13F + 0.5F), 0x1p13F + 32.5F);
}

}  // namespace
}  // namespace gpu_model::wgmma
