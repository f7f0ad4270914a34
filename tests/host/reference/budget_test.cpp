#include "reference/judge/budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/formats/half.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {
namespace {

Shape make_shape(const std::string& family, std::int64_t seq_q, std::int64_t seq_kv,
                 Mask mask = Mask::kNone) {
  Shape shape;
  shape.name = "test";
  shape.batch = 1;
  shape.heads_q = 4;
  shape.heads_kv = 2;
  shape.seq_q = seq_q;
  shape.seq_kv = seq_kv;
  shape.head_dim = 64;
  shape.mask = mask;
  shape.inputs.family = family;
  return shape;
}

std::string failures(const std::vector<float>& got, const CaseData& data,
                     const ModelOptions& options) {
  std::string names;
  for (const GateResult& gate :
       judge_budget(got, data.reference_kernel.o, data.shape, *budget_of(data, options))) {
    if (!gate.pass) names += (names.empty() ? "" : " ") + gate.name;
    EXPECT_EQ(gate.pass, gate.detail.empty()) << gate.name;
  }
  return names;
}

ModelRun run(const CaseData& data, const ModelOptions& options) {
  return run_model(data.q, data.k, data.v, sizes_of(data.shape), data.softmax_scale, options);
}

std::vector<float> rounded(std::vector<float> o, Dtype dtype) {
  for (float& value : o) value = decode_16(encode_16(value, dtype), dtype);
  return o;
}

TEST(Budget, MultipleIsWhatItsDerivationSays) {
  EXPECT_DOUBLE_EQ(budget_multiple(1), 6.0);
  EXPECT_DOUBLE_EQ(budget_multiple(81), 2.0);
  EXPECT_NEAR(budget_multiple(1 << 20), 1.5, 0.005);
}

// Two derivations of one thing: what the rounding model does, and what its roundings' variances add
// up to.
TEST(Budget, ModelAndVariancesAgree) {
  for (const InputFamily& family : input_families()) {
    const auto data = make_case(make_shape(std::string(family.name), 40, 200), 1);
    for (const bool fp8_p : {false, true}) {
      for (const Dtype output : {Dtype::kHalf, Dtype::kBFloat16}) {
        const ModelRun model = run(*data, model_of(fp8_p, output));
        double expected = 0.0;
        double actual = 0.0;
        for (std::size_t i = 0; i < model.attention.o.size(); ++i) {
          const double error = model.attention.o[i] - data->reference_kernel.o[i];
          actual += error * error;
          expected += model.expected_square[i / 64];
        }
        EXPECT_LE(std::sqrt(actual), 1.5 * std::sqrt(expected)) << family.name << " " << fp8_p;
        for (std::size_t i = 0; i < model.attention.lse.size(); ++i) {
          EXPECT_NEAR(model.attention.lse[i], data->reference_kernel.lse[i],
                      1e-4 * std::max(1.0F, std::fabs(data->reference_kernel.lse[i])))
              << family.name;
        }
      }
    }
  }
}

TEST(Budget, AnExactKernelPassesAndZerosFailOnEveryFamilyMaskAndFormat) {
  for (const InputFamily& family : input_families()) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      for (const Dtype dtype : {Dtype::kE4M3, Dtype::kE5M2}) {
        const auto data = make_case(make_shape(std::string(family.name), 33, 90, mask), 2, dtype);
        SCOPED_TRACE(std::string(family.name) + " " + name_of(mask) + " " + name_of(dtype));
        for (const bool fp8_p : {false, true}) {
          for (const Dtype output : {Dtype::kHalf, Dtype::kBFloat16}) {
            const ModelOptions options = model_of(fp8_p, output);
            EXPECT_EQ(failures(rounded(data->reference_kernel.o, output), *data, options), "");
            EXPECT_EQ(failures(run(*data, options).attention.o, *data, options), "");
          }
          const std::vector<float> zeros(data->reference_kernel.o.size());
          EXPECT_EQ(failures(zeros, *data, model_of(fp8_p, Dtype::kHalf)),
                    "budget_row budget_head budget_tensor");
        }
      }
    }
  }
}

std::string lse_failures(const std::vector<float>& lse, const CaseData& data) {
  std::string names;
  const auto budget = budget_of(data, model_of(true, Dtype::kHalf));
  for (const GateResult& gate :
       judge_lse_budget(lse, data.reference_kernel.lse, data.shape, *budget)) {
    if (!gate.pass) names += (names.empty() ? "" : " ") + gate.name;
  }
  return names;
}

// Of weights before rounding or after it, as fp32 or as FP8 tensor cores add them up.
TEST(Budget, AnLseOfExactOrOfRoundedWeightsPasses) {
  for (const InputFamily& family : input_families()) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      const auto data = make_case(make_shape(std::string(family.name), 33, 90, mask), 2);
      SCOPED_TRACE(std::string(family.name) + " " + name_of(mask));
      EXPECT_EQ(lse_failures(data->reference_kernel.lse, *data), "");
      for (const Accumulator accumulator : {Accumulator::kFp32, Accumulator::kTruncated13}) {
        ModelOptions options = model_of(true, Dtype::kHalf);
        options.accumulator = accumulator;
        const ModelRun model = run(*data, options);
        std::vector<float> lse = model.attention.lse;
        EXPECT_EQ(lse_failures(lse, *data), "");
        for (std::size_t i = 0; i < lse.size(); ++i) {
          if (std::isfinite(lse[i])) lse[i] += std::log(model.sums[i]);
        }
        EXPECT_EQ(lse_failures(lse, *data), "");
      }
    }
  }
}

TEST(Budget, AnLseOfAnythingElseFails) {
  const auto data = make_case(make_shape("normal", 256, 256), 3);
  const std::vector<float>& right = data->reference_kernel.lse;
  constexpr const char* kAll = "lse_row lse_head lse_tensor";
  std::vector<float> lse = right;
  for (float& value : lse) value += 0x1p-6F;
  EXPECT_EQ(lse_failures(lse, *data), "lse_head lse_tensor") << "a 64th of the sum is lost";
  lse = right;
  std::rotate(lse.begin(), lse.begin() + 1, lse.end());
  EXPECT_EQ(lse_failures(lse, *data), kAll);
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0F}) {
    lse = right;
    lse[300] = wrong;
    EXPECT_NE(lse_failures(lse, *data).find("lse_row"), std::string::npos) << wrong;
  }
  lse.pop_back();
  EXPECT_EQ(lse_failures(lse, *data), "lse_tensor");
  // A row without keys has -inf, one that sees a NaN has NaN.
  auto masked = make_case(make_shape("normal", 40, 8, Mask::kCausal), 4);
  lse = masked->reference_kernel.lse;
  lse[0] = -1e30F;
  EXPECT_NE(lse_failures(lse, *masked), "");
}

TEST(Budget, OneWrongRowOrHeadFailsItsOwnGate) {
  const auto data = make_case(make_shape("normal", 256, 256), 3);
  const ModelOptions options = model_of(true, Dtype::kHalf);
  const std::vector<float> right = run(*data, options).attention.o;
  std::vector<float> row = right;
  std::fill_n(row.begin() + 64 * 300, 64, 0.0F);
  EXPECT_NE(failures(row, *data, options).find("budget_row"), std::string::npos);
  std::vector<float> head = right;
  for (std::size_t i = 0; i < 64 * 256; ++i) head[i] *= 1.08F;
  EXPECT_NE(failures(head, *data, options).find("budget_head"), std::string::npos)
      << "8 % too large, less than a row may be off";
}

TEST(Budget, NamesTheWorstPlace) {
  const auto data = make_case(make_shape("normal", 32, 64), 3);
  const ModelOptions options = model_of(false, Dtype::kHalf);
  std::vector<float> got = rounded(data->reference_kernel.o, Dtype::kHalf);
  got[(2 * 32 + 17) * 64 + 5] += 1.0F;
  const auto gates =
      judge_budget(got, data->reference_kernel.o, data->shape, *budget_of(*data, options));
  EXPECT_NE(gates[0].detail.find("(batch 0, head 2, row 17)"), std::string::npos)
      << gates[0].detail;
  EXPECT_NE(gates[1].detail.find("(batch 0, head 2)"), std::string::npos) << gates[1].detail;
}

TEST(Budget, NanIsNotLaunderedAndFullyMaskedRowsAreZero) {
  auto data = make_case(make_shape("normal", 40, 8, Mask::kCausal), 4);  // 32 rows see no key
  const ModelOptions options = model_of(false, Dtype::kHalf);
  std::vector<float> got = rounded(data->reference_kernel.o, Dtype::kHalf);
  EXPECT_EQ(failures(got, *data, options), "");
  got[0] = 1e-6F;
  EXPECT_NE(failures(got, *data, options), "") << "a row without keys is 0";
  got[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(failures(got, *data, options), "budget_row budget_head budget_tensor");
  got.pop_back();
  EXPECT_EQ(failures(got, *data, options), "budget_tensor");
}

// What the "v_bias" family is for: 16k values of one sign in a short accumulator.
TEST(Budget, ATruncatingAccumulatorShowsAtSixteenThousandBiasedValues) {
  const auto data = make_case(make_shape("v_bias", 2, 16384), 5);
  ModelOptions options = model_of(true, Dtype::kHalf);
  const ModelOptions budget = options;
  options.accumulator = Accumulator::kTruncated13;
  EXPECT_EQ(failures(run(*data, options).attention.o, *data, budget), "");
  options.accumulator = Accumulator::kTruncated13Carried;
  EXPECT_NE(failures(run(*data, options).attention.o, *data, budget), "");
}

}  // namespace
}  // namespace fp8_sdpa::reference
