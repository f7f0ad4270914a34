// setmaxnreg and elect.sync on the host executor.
#include <set>

#include "tests/gpu_model/hopper_support.hpp"

namespace gpu_model {
namespace {

using fp8_sdpa::ExecutorOptions;

TEST(Setmaxnreg, WaitsForRegistersThatOthersGiveUp) {
  // 384 threads start with 168 each: 240 for two warpgroups take 24 for the third.
  const auto kernel = [](void* keep, NoShared&) {
    if (gpu::warp_idx() >= 4) {
      gpu::setmaxnreg_inc<240>();
    } else if (keep == nullptr) {
      gpu::setmaxnreg_dec<24>();
    } else {
      gpu::setmaxnreg_dec<32>();
    }
  };
  for (const auto& options : adversaries(3)) {
    const auto enough = run_kernel<384>(kernel, nullptr, options);
    EXPECT_TRUE(enough.ok()) << enough.message();
    int keep = 0;
    expect_kernel_error(run_kernel<384>(kernel, &keep, options),
                        {"deadlock", "setmaxnreg_inc at ", "warpgroup_test.cpp:"});
  }
}

TEST(Setmaxnreg, RefusesTheWrongDirectionAndPartsOfAWarpgroup) {
  const auto run = [](auto body) {
    return
        [body](const ExecutorOptions& options) { return run_kernel<384>(body, nullptr, options); };
  };
  expect_error_always(run([](void*, NoShared&) { gpu::setmaxnreg_inc<160>(); }),
                      {"setmaxnreg_inc", "increases to 160", "has 168", "warpgroup_test.cpp:"});
  expect_error_always(run([](void*, NoShared&) { gpu::setmaxnreg_dec<176>(); }),
                      {"setmaxnreg_dec", "decreases to 176", "has 168"});
  expect_error_always(run([](void*, NoShared&) {
                        if (gpu::warp_idx() == 1) gpu::setmaxnreg_dec<40>();
                      }),
                      {"whole warpgroups", "warp 0 ends with 168", "warp 1 with 40"});
}

TEST(ElectOne, IsNotAlwaysTheSameLane) {
  std::set<int> elected;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    int lane = -1;
    const auto status = run_kernel<32>(
        [](void* data, NoShared&) {
          if (gpu::elect_one()) *static_cast<int*>(data) = gpu::lane_idx();
        },
        &lane, {.seed = seed, .os_threads = 1});
    EXPECT_TRUE(status.ok()) << status.message();
    elected.insert(lane);
  }
  EXPECT_GT(elected.size(), 5U);
}

TEST(ElectOne, NeedsTheWholeWarp) {
  const auto status = run_kernel<32>([](void*, NoShared&) {
    if (gpu::lane_idx() != 3) static_cast<void>(gpu::elect_one());
  });
  expect_kernel_error(status, {"thread 3 (warp 0, lane 3) exits", "elect_one"});
}

}  // namespace
}  // namespace gpu_model
