// What each rung of the ladder may change in an output, and what it may not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/formats/half.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

class Ladder : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }

  /// Two query tiles and three KV tiles, both with a partial one.
  reference::CaseResult run(const Variant& variant) const {
    const auto data = case_data(make_shape(1, 2, 61, 75), 12);
    auto result = reference::check(variant, *data, device_, config().tolerances);
    EXPECT_TRUE(result.ok()) << variant.name << ": " << result.status().message();
    return result.ok() ? *result : reference::CaseResult{};
  }

  /// Runs every Stage C variant that has the toggle beside the one that has it not.
  template <class Compare>
  void for_each_pair(bool Toggles::*toggle, Compare compare) const {
    int pairs = 0;
    for (const Variant& variant : variants()) {
      if (variant.family != Family::kStageC || !(variant.toggles.*toggle)) continue;
      Toggles without = variant.toggles;
      without.*toggle = false;
      const auto other = find_variant(stage_c_name(without));
      ASSERT_TRUE(other.ok()) << other.status().message();
      SCOPED_TRACE(std::string(variant.name) + " and " + std::string((*other)->name));
      const auto with_toggle = run(variant);
      const auto without_toggle = run(**other);
      ASSERT_FALSE(with_toggle.output.empty());
      ASSERT_EQ(with_toggle.output.size(), without_toggle.output.size());
      compare(with_toggle, without_toggle);
      ++pairs;
    }
    EXPECT_GT(pairs, 0) << "no variant has the toggle";
  }

  bool ready_ = false;
  Device device_;
};

float largest_difference(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(reference::decode_16(a[i], Dtype::kHalf) -
                                       reference::decode_16(b[i], Dtype::kHalf));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

/// Tensor-core P V rounds P to half and sums in another order.
constexpr float kTensorCoreBound = 1e-3F;

// The same products in the same order: U is equal to the bit, which is more than the 1e-6 asked.
TEST_P(Ladder, VectorisedPvChangesNoBit) {
  if (!ready_) return;
  for_each_pair(&Toggles::vec_pv, [](const auto& a, const auto& b) {
    EXPECT_EQ(a.output, b.output);
    EXPECT_EQ(a.log_sum_exp, b.log_sum_exp);
  });
}

TEST_P(Ladder, TensorCorePvStaysNearTheScalarPath) {
  if (!ready_) return;
  for_each_pair(&Toggles::wmma_pv, [](const auto& a, const auto& b) {
    EXPECT_LE(largest_difference(a.output, b.output), kTensorCoreBound);
    EXPECT_GT(largest_difference(a.output, b.output), 0.0F) << "P was not rounded to half";
    EXPECT_EQ(a.log_sum_exp, b.log_sum_exp) << "l is summed before P is rounded";
  });
}

// Who copies changes nothing.
TEST_P(Ladder, WarpSpecialisationChangesNoBit) {
  if (!ready_) return;
  for_each_pair(&Toggles::warp_spec, [](const auto& a, const auto& b) {
    EXPECT_EQ(a.output, b.output);
    EXPECT_EQ(a.log_sum_exp, b.log_sum_exp);
  });
}

// mma.sync in place of wmma may sum a fragment's products in another order.
TEST_P(Ladder, SwizzleStaysNearThePaddedLayout) {
  if (!ready_) return;
  for_each_pair(&Toggles::xor_swizzle, [](const auto& a, const auto& b) {
    EXPECT_LE(largest_difference(a.output, b.output), kTensorCoreBound);
  });
}

INSTANTIATE_TEST_SUITE_P(Gates, Ladder, testing::ValuesIn(kBackends),
                         [](const testing::TestParamInfo<Backend>& info) {
                           return std::string(name_of(info.param));
                         });

}  // namespace
}  // namespace fp8_sdpa::tests
