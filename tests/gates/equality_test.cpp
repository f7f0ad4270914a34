// Outputs that must be equal to the bit.
#include <gtest/gtest.h>

#include <memory>

#include "gpu/executor_options.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

class Equality : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }

  // The output of a variant on a case of two query tiles and three KV tiles, both with a partial
  // one.
  reference::CaseResult run(const Variant& variant, Dtype dtype, const Device& device) const {
    const auto data = case_data(make_shape(1, 2, 61, 75), 11, dtype);
    auto result = reference::check(variant, *data, device, config().tolerances);
    EXPECT_TRUE(result.ok()) << variant.name << ": " << result.status().message();
    return result.ok() ? *result : reference::CaseResult{};
  }

  bool ready_ = false;
  Device device_;
};

// USE_KV_LUT changes how codes become halves, not which halves they become.
TEST_P(Equality, LookupTableAndDirectConversionAgree) {
  if (!ready_) return;
  int pairs = 0;
  for (const Variant& variant : variants()) {
    if (!variant.toggles.kv_lut) continue;
    Toggles direct = variant.toggles;
    direct.kv_lut = false;
    const auto other = find_variant(stage_c_name(direct));
    ASSERT_TRUE(other.ok()) << other.status().message();
    for (const Dtype dtype : {Dtype::kE4M3, Dtype::kE5M2}) {
      const auto with_table = run(variant, dtype, device_);
      const auto without = run(**other, dtype, device_);
      ASSERT_FALSE(with_table.output.empty());
      EXPECT_EQ(with_table.output, without.output) << variant.name << " " << name_of(dtype);
      EXPECT_EQ(with_table.log_sum_exp, without.log_sum_exp) << variant.name;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 0) << "no variant has a lookup table";
}

// USE_CP_ASYNC changes when bytes arrive, not which.
TEST_P(Equality, CopyingAsynchronouslyChangesNoBit) {
  if (!ready_) return;
  int pairs = 0;
  for (const Variant& variant : variants()) {
    if (!variant.toggles.cp_async || variant.toggles.warp_spec) continue;
    Toggles plain = variant.toggles;
    plain.cp_async = false;
    const auto other = find_variant(stage_c_name(plain));
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_EQ(run(variant, Dtype::kE4M3, device_).output,
              run(**other, Dtype::kE4M3, device_).output)
        << variant.name;
    ++pairs;
  }
  EXPECT_GT(pairs, 0) << "no variant uses cp.async";
}

// The schedule of the host executor is not an input.
TEST(EqualityOnHost, EveryScheduleGivesTheSameBits) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  for (const Kernel& kernel : all_kernels()) {
    const auto data =
        case_data(make_shape(1, 2, 61, kernel.keys(75), kernel.head_dim), 11, kernel.codes());
    std::vector<std::uint16_t> first;
    for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom}) {
      device.executor =
          std::make_shared<const ExecutorOptions>(ExecutorOptions{.schedule = schedule});
      reference::CheckOptions options;
      options.lse_sum = kernel.lse_sum;
      const auto result =
          reference::check(*kernel.variant, *data, device, config().tolerances, options);
      ASSERT_TRUE(result.ok()) << result.status().message();
      if (first.empty()) first = result->output;
      EXPECT_EQ(result->output, first) << kernel.name << " schedule " << static_cast<int>(schedule);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Equality, testing::ValuesIn(kBackends),
                         [](const testing::TestParamInfo<Backend>& info) {
                           return std::string(name_of(info.param));
                         });

}  // namespace
}  // namespace fp8_sdpa::tests
