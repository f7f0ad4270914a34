// Every input family on every variant that serves the problem, and the lengths at which tiles,
// steps and vector accesses begin and end. Masks, shared KV heads and head sizes that a variant
// does not serve yet are known declines, by their reason; any other decline fails.
#include "reference/inputs/families.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/oracle/case.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

class Families : public VariantTest {
 protected:
  /// Passes the gates, and each output is the reference's, rounded once.
  void expect_exact(const reference::Shape& shape, std::uint64_t seed,
                    const std::vector<Dtype>& outputs) {
    const auto data = case_data(shape, seed, codes());
    for (const Dtype output : outputs) {
      SCOPED_TRACE(testing::Message() << shape.name << " " << name_of(output));
      reference::CheckOptions options;
      options.output = output;
      const auto result = reference::check(variant(), *data, device_, config().tolerances, options);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_TRUE(result->pass) << result->failure();
      // Weights of 8-bit scores have a factor in common that is near 1: they are rounded.
      if (variant().int8) continue;
      for (std::size_t i = 0; i < result->output.size(); ++i) {
        ASSERT_EQ(result->output[i], reference::encode_16(data->reference_kernel.o[i], output))
            << "element " << i;
      }
    }
  }
};

TEST_P(Families, EveryFamilyStaysWithinItsBudget) {
  if (!ready_) return;
  for (const reference::InputFamily& family : reference::input_families()) {
    const std::string name(family.name);
    // Where one key is unlike the others, how many others there are matters.
    const bool long_too = name == "needle" || name == "sink" || name == "outliers";
    for (const int head_dim : head_dims()) {
      for (const std::int64_t seq_kv : {keys(72), std::int64_t{1025}}) {
        if (seq_kv > 1000 && !long_too) continue;
        reference::Shape shape = make_shape(1, 2, seq_kv > 1000 ? 3 : 40, seq_kv, head_dim);
        shape.name += "_" + name;
        shape.inputs.family = name;
        reference::CheckOptions options;
        options.rerun = false;
        options.padded = true;
        SCOPED_TRACE(shape.name);
        expect_pass_or_known_decline(variant(), shape, 21, device_, options);
      }
    }
  }
}

/// (1, 1, seq_q, seq_kv, head_dim) of a family.
reference::Shape shape_of(const std::string& family, int seq_q, int seq_kv, int head_dim) {
  reference::Shape shape = make_shape(1, 1, seq_q, seq_kv, head_dim);
  shape.inputs.family = family;
  shape.name += "_" + family;
  return shape;
}

reference::CheckOptions once() {
  reference::CheckOptions options;
  options.rerun = false;
  return options;
}

TEST_P(Families, SixteenThousandBiasedValues) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    expect_pass_or_known_decline(variant(), shape_of("v_bias", 2, 16384, head_dim), 22, device_,
                                 once());
  }
}

// Four thousand weights of e^-9: half as much together as the one key of weight 1.
TEST_P(Families, ALongTailKeepsItsMass) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    expect_pass_or_known_decline(variant(), shape_of("long_tail", 32, 4097, head_dim), 22, device_,
                                 once());
  }
}

/// A tail of 2^-4 of the largest weight, which E4M3 holds exactly; but keys 32, 64 and 96 score
/// `above` higher than the rest of it. A kernel that rounds relative to one of those, as one in key
/// groups does, loses or gains a part of the tail.
std::shared_ptr<const reference::CaseData> two_maxima(float above, int head_dim) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kKeys = 2048;
  constexpr float kLargest = 4.0F;
  const auto dim = static_cast<std::size_t>(head_dim);
  const auto code = [](float x) { return reference::encode_code(x, Dtype::kE4M3); };
  reference::CaseData data;
  data.shape = make_shape(1, 1, kRows, kKeys, head_dim);
  data.softmax_scale = std::log(2.0F);
  for (auto* tensor : {&data.q, &data.k, &data.v}) {
    tensor->dtype = Dtype::kE4M3;
    tensor->descales = {1.0F};
  }
  data.q.codes.resize(kRows * dim);
  data.k.codes.resize(kKeys * dim);
  data.v.codes.resize(kKeys * dim, code(1.0F));
  std::fill_n(data.v.codes.begin(), dim, code(-1.0F));
  for (std::size_t row = 0; row < kRows; ++row) data.q.codes[row * dim] = code(1.0F);
  data.k.codes[0] = code(kLargest);
  for (const std::size_t key : {32, 64, 96}) data.k.codes[key * dim] = code(above);
  return reference::from_codes(std::move(data));
}

TEST_P(Families, ALongTailMayBeRoundedRelativeToAnyMaximum) {
  if (!ready_ || variant().int8) return;  // of weights in E4M3
  for (const float above : {0.0F, 0.6875F, 0.9375F, 1.0F}) {
    SCOPED_TRACE(above);
    reference::CheckOptions options;
    options.rerun = false;
    options.budgets_only = true;
    for (const int head_dim : head_dims()) {
      const auto data = two_maxima(above, head_dim);
      if (!serves_or_known_decline(variant(), data->shape, device_)) continue;
      expect_pass(variant(), *data, device_, options);
    }
  }
}

// K = 0: every weight is 1. With a power of two of keys nothing is rounded before the output is.
TEST_P(Families, EqualWeightsGiveTheExactMean) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    for (const int seq_kv : {1, 2, 16, 32, 64, 128, 256, 512}) {
      reference::Shape shape = make_shape(2, 2, 17, seq_kv, head_dim);
      shape.inputs.family = "zero_k";
      shape.name += "_zero_k";
      if (!serves_or_known_decline(variant(), shape, device_)) continue;
      expect_exact(shape, 23, {Dtype::kHalf, Dtype::kBFloat16});
    }
  }
}

// As large as problem.hpp allows: a weight is 2^-5 of that of the next integer.
TEST_P(Families, StepsOfInt8ScoresMayBeLarge) {
  if (!ready_ || !variant().int8) return;
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(1, 2, 40, 500, head_dim);
    reference::CaseData data = *case_data(shape, 29, codes());
    for (float& descale : data.q.descales) descale = 3.99F / data.softmax_scale;
    for (float& descale : data.k.descales) descale = 1.0F;
    data.k.descales.back() = -1.0F;
    expect_pass(variant(), *reference::from_codes(std::move(data)), device_, once());
  }
}

// Of what an all-zero head may be quantised with: every key that a row sees has the same weight,
// and the others none.
TEST_P(Families, AScaleOfZeroMakesEveryKeyAlike) {
  if (!ready_) return;
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const auto& [seq_q, seq_kv, small_v] :
           {std::tuple{40, 90, false}, {40, 470, false}, {40, 90, true}, {40, 150, true}}) {
        reference::Shape shape = make_shape(1, 3, seq_q, seq_kv, head_dim);
        shape.mask = mask;
        SCOPED_TRACE(testing::Message() << shape.name << " " << name_of(mask));
        reference::CheckOptions options = once();
        options.budgets_only = true;
        if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
        reference::CaseData data = *case_data(shape, 27, codes());
        data.q.descales[0] = 0.0F;
        data.k.descales[1] = -0.0F;
        // A product that is no float any more.
        data.q.descales[2] = 1e-30F;
        data.k.descales[2] = -1e-30F;
        // Sums far below 1, if anything but what was drawn were in them.
        if (small_v) std::fill(data.v.codes.begin(), data.v.codes.end(), std::uint8_t{0x81});
        expect_pass(variant(), *reference::from_codes(std::move(data)), device_, options);
      }
    }
  }
}

// Every score is the smallest or the largest that codes of a format can make.
TEST_P(Families, ScoresAtTheEndsOfWhatThereIs) {
  if (!ready_) return;
  constexpr std::uint8_t kMost = 0x7E;  // 448
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(1, 1, 20, keys(72), head_dim);
    reference::CheckOptions options = once();
    options.budgets_only = true;
    if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
    for (const std::uint8_t sign : {0x80, 0x00}) {
      for (const float descale : {0x1p-13F, -0x1p-13F}) {
        SCOPED_TRACE(testing::Message() << shape.name << " " << +sign << " " << descale);
        reference::CaseData data = *case_data(shape, 28, codes());
        std::fill(data.q.codes.begin(), data.q.codes.end(), kMost);
        std::fill(data.k.codes.begin(), data.k.codes.end(), kMost | sign);
        data.q.descales = {descale};
        data.k.descales = {1.0F};
        expect_pass(variant(), *reference::from_codes(std::move(data)), device_, options);
      }
    }
  }
}

// One weight is 1 and no other reaches 2^-24 of it: O is the key's value, times its descale.
TEST_P(Families, OneHotWeightsGiveTheValueItself) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    reference::Shape shape = make_shape(1, 2, rows(70), keys(70), head_dim);
    shape.inputs.family = "one_hot";
    shape.name += "_one_hot";
    expect_exact(shape, 24, {Dtype::kHalf});
  }
}

TEST_P(Families, LengthsAroundEveryTile) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv] : {std::pair{113, 203},
                                      {16, 512},
                                      {15, 1023},
                                      {31, 1024},
                                      {63, 1025},
                                      {129, 2},
                                      {127, 17},
                                      {1, 255},
                                      {2, 257}}) {
    SCOPED_TRACE(testing::Message() << seq_q << " x " << seq_kv);
    for (const int head_dim : head_dims()) {
      expect_pass_or_known_decline(variant(), make_shape(1, 1, seq_q, seq_kv, head_dim), 25,
                                   device_);
    }
  }
}

// Problems that are valid and that a variant may decline, with a reason on the list. One that it
// serves is judged by the same gates.
TEST_P(Families, MasksHeadSizesAndSharedHeadsPassOrAreDeclinedByName) {
  if (!ready_) return;
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    for (const int group : {1, 4}) {
      for (const int head_dim : {64, 128, 256}) {
        for (const auto& [seq_q, seq_kv] : {std::pair{33, 33}, {20, 150}, {50, 18}}) {
          reference::Shape shape = make_shape(2, 4, seq_q, seq_kv, head_dim);
          shape.heads_kv = 4 / group;
          shape.mask = mask;
          shape.name += std::string("_kv") + std::to_string(shape.heads_kv) + "_" + name_of(mask);
          SCOPED_TRACE(shape.name);
          expect_pass_or_known_decline(variant(), shape, 26, device_);
        }
      }
    }
  }
}

// The same with more keys than one step of any kernel takes, and causal rows that end anywhere in
// a tile.
TEST_P(Families, MasksAndHeadSizesOverSeveralTilesPassOrAreDeclinedByName) {
  if (!ready_) return;
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const auto& [seq_q, seq_kv] : {std::pair{200, 500}, {300, 280}}) {
        reference::Shape shape = make_shape(1, 2, seq_q, seq_kv, head_dim);
        shape.heads_kv = 1;
        shape.mask = mask;
        shape.inputs.family = "normal";
        shape.name += std::string("_kv1_normal_") + name_of(mask);
        SCOPED_TRACE(shape.name);
        reference::CheckOptions options;
        options.rerun = false;
        expect_pass_or_known_decline(variant(), shape, 27, device_, options);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Families,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(all_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
