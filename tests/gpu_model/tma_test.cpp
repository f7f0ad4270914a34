// TMA on the host executor: when boxes land, what is seen before, what is refused.
#include <array>
#include <cstring>

#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model::tma {
namespace {

using fp8_sdpa::Asynchrony;
using fp8_sdpa::ExecutorOptions;
using fp8_sdpa::StatusCode;

constexpr int kColumns = 64;
constexpr int kRows = 16;
constexpr int kBoxRows = 8;
constexpr int kBoxBytes = kBoxRows * kColumns;

struct Tiles {
  alignas(1024) unsigned char at[2][kBoxBytes];
  gpu::MBarrier full;
};

struct Tensor {
  alignas(64) std::array<unsigned char, kRows * kColumns> bytes;
  std::array<unsigned char, kBoxBytes> seen;
  Tensor() {
    seen.fill(0);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(i * 7 % 251);
    }
  }
};

/// Runs a body on a warp, once the barrier counts one arrival.
template <class Body>
fp8_sdpa::Status run_with(Body, Tensor& tensor, const ExecutorOptions& options) {
  return run_mapped<32, Tiles>(
      [](const gpu::TensorMap& map, void* data, Tiles& sm) {
        if (gpu::thread_idx() == 0) {
          gpu::mbarrier_init(sm.full, 1);
          gpu::fence_mbarrier_init();
        }
        gpu::sync_warp();
        Body{}(map, *static_cast<Tensor*>(data), sm);
      },
      byte_matrix(tensor.bytes.data(), kRows, kColumns, kBoxRows), &tensor, options);
}

/// The same on a tensor of its own.
template <class Body>
Run on_a_warp(Body body) {
  return [body](const ExecutorOptions& options) {
    Tensor tensor;
    return run_with(body, tensor, options);
  };
}

/// Thread 0 loads the box that begins at `row`, as if called where this is.
GPU_FN void load(const gpu::TensorMap& map, Tiles& sm, int expected, int row = 0,
                 gpu::Loc loc = GPU_LOC) {
  if (gpu::thread_idx() != 0) return;
  gpu::mbarrier_arrive_expect_tx(sm.full, expected, loc);
  gpu::tma_load_2d(sm.at[0], map, sm.full, 0, row, loc);
}

TEST(TmaLoad, ShowsNothingBeforeItsPhaseEndsOrAllAtOnce) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer stops at the read of a box in flight";
  for (const auto asynchrony : kAsynchronies) {
    Tensor tensor;
    const auto status = run_with(
        [](const gpu::TensorMap& map, Tensor& tensor, Tiles& sm) {
          load(map, sm, kBoxBytes, 4);
          if (gpu::thread_idx() == 0) std::memcpy(tensor.seen.data(), sm.at[0], kBoxBytes);
          gpu::mbarrier_wait(sm.full, 0);
        },
        tensor, {.asynchrony = asynchrony, .os_threads = 1});
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < kBoxBytes; ++i) {
      const unsigned char landed = tensor.bytes[4 * kColumns + i];
      EXPECT_EQ(tensor.seen[i], asynchrony == Asynchrony::kLate ? 0xff : landed);
    }
  }
}

TEST(TmaLoad, SeesThatNobodyWaits) {
  const int line = __LINE__ + 2;
  expect_error_always(
      on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) { load(map, sm, kBoxBytes); }),
      {"wait", at_line(line)});
}

TEST(TmaLoad, CountsBytesExactly) {
  // Too many expected: the phase never ends.
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        load(map, sm, kBoxBytes + 16);
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"deadlock", "mbarrier_wait", "0 arrivals of 1", "16 bytes"});
  // Too few: more lands than the phase, or the one after it, was told of.
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        load(map, sm, kBoxBytes - 16);
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"16 bytes more than expected landed"});
  // The second of two boxes was forgotten.
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        load(map, sm, kBoxBytes);
                        if (gpu::thread_idx() == 0) gpu::tma_load_2d(sm.at[1], map, sm.full, 0, 8);
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"expected"});
}

TEST(TmaLoad, OutOfBoundsBytesCountToo) {
  for (const auto& options : adversaries(3)) {
    const auto status = on_a_warp([](const gpu::TensorMap& map, Tensor& tensor, Tiles& sm) {
      load(map, sm, kBoxBytes, 100);
      gpu::mbarrier_wait(sm.full, 0);
      tensor.seen[gpu::lane_idx()] = sm.at[0][gpu::lane_idx()];
    })(options);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(TmaLoad, SeesWritesToABoxInFlight) {
  if (kSanitized) GTEST_SKIP() << "AddressSanitizer stops at the write itself";
  const int line = __LINE__ + 2;
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        load(map, sm, kBoxBytes);
                        if (gpu::thread_idx() == 0) sm.at[0][100] = 1;
                        gpu::mbarrier_wait(sm.full, 0);
                      }),
                      {"was written while that load was in flight", at_line(line)}, true);
}

TEST(TmaLoad, RefusesABarrierThatTheAsyncProxyDoesNotKnow) {
  const gpu_model::Run not_fenced = [](const ExecutorOptions& options) {
    Tensor tensor;
    return run_mapped<32, Tiles>(
        [](const gpu::TensorMap& map, void*, Tiles& sm) {
          if (gpu::thread_idx() != 0) return;
          gpu::mbarrier_init(sm.full, 1);
          load(map, sm, kBoxBytes);
          gpu::mbarrier_wait(sm.full, 0);
        },
        byte_matrix(tensor.bytes.data(), kRows, kColumns, kBoxRows), &tensor, options);
  };
  expect_error_always(not_fenced, {"tma_load_2d", "fence_mbarrier_init", "tma_test.cpp:"});
}

TEST(TmaLoad, RefusesWrongOperands) {
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        gpu::tma_load_2d(sm.at[0] + 64, map, sm.full, 0, 0);
                      }),
                      {"tma_load_2d", "not a multiple of 128 bytes", "tma_test.cpp:"});
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        gpu::tma_load_2d(sm.at[1] + 1152, map, sm.full, 0, 0);
                      }),
                      {"tma_load_2d", "512 bytes is not inside", "tma_test.cpp:"});
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        gpu::tma_load_2d(sm.at[1] + 128, map, sm.full, 0, 0);
                      }),
                      {"tma_load_2d", "covers the mbarrier at byte 1024", "tma_test.cpp:"});
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        gpu::tma_load_2d(sm.at[0], map, sm.full, 24, 0);
                      }),
                      {"tma_load_2d", "begins 24 bytes into a row", "not a multiple of 16"});
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        gpu::tma_load_3d(sm.at[0], map, sm.full, 0, 0, 0);
                      }),
                      {"tma_load_3d", "rank 2", "has 3"});
  expect_error_always(on_a_warp([](const gpu::TensorMap& map, Tensor&, Tiles& sm) {
                        const gpu::TensorMap copy = map;
                        gpu::tma_load_2d(sm.at[0], copy, sm.full, 0, 0);
                      }),
                      {"tma_load_2d", "the tensor map is a copy"});
}

TEST(TmaLoad, RefusesAMapThatNobodyEncoded) {
  struct Body {
    void operator()(const gpu::TensorMap& map, void*, Tiles&) const {
      gpu::prefetch_tensor_map(map);
    }
  };
  using Kernel = MappedKernelOf<Body, 32, Tiles>;
  const ExecutorOptions options{.os_threads = 1};
  expect_kernel_error(gpu::launch<Kernel>(dim3(1), {{}, nullptr}, {.executor = &options}),
                      {"prefetch_tensor_map", "has not been encoded"});
}

TEST(TensorMaps, RefuseWhatTmaCannotServe) {
  alignas(16) static unsigned char memory[4096];
  const gpu::TensorShape right = byte_matrix(memory, kRows, kColumns, kBoxRows);
  gpu::TensorMap map{};
  EXPECT_TRUE(gpu::encode_tensor_map(right, map).ok());
  const auto refused = [&](auto change, const std::string& part) {
    gpu::TensorShape shape = right;
    change(shape);
    const auto status = gpu::encode_tensor_map(shape, map);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  refused([](auto& s) { s.base = nullptr; }, "address");
  refused([](auto& s) { s.base = memory + 8; }, "multiple of 16");
  refused([](auto& s) { s.base = reinterpret_cast<void*>(std::uintptr_t{1} << 62); }, "no memory");
  refused([](auto& s) { s.element_bytes = 3; }, "elements of 3 bytes");
  refused([](auto& s) { s.rank = 1; }, "rank 1");
  refused([](auto& s) { s.rank = 5; }, "rank 5");
  refused([](auto& s) { s.sizes[1] = 0; }, "dimension 1 has 0 elements");
  refused([](auto& s) { s.strides[1] = 40; }, "stride of 40 bytes");
  refused([](auto& s) { s.box[1] = 257; }, "257 elements");
  refused([](auto& s) { s.box[0] = 24; }, "24 bytes");
  refused([](auto& s) { s.swizzle = gpu::Swizzle::k32B; }, "the swizzle spans 32");
}

}  // namespace
}  // namespace gpu_model::tma
