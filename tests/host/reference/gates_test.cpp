#include "reference/judge/gates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/formats/half.hpp"
#include "reference/oracle/case.hpp"
#include "reference/oracle/model.hpp"
#include "tests/host/reference/tolerances.hpp"

namespace fp8_sdpa::reference {
namespace {

Shape make_shape(std::int64_t seq, Mask mask = Mask::kNone, const char* family = "uniform") {
  Shape shape;
  shape.name = "test";
  shape.batch = 1;
  shape.heads_q = shape.heads_kv = 2;
  shape.seq_q = shape.seq_kv = seq;
  shape.head_dim = 64;
  shape.mask = mask;
  shape.inputs.family = family;
  return shape;
}

JudgeContext context_of(const CaseData& data) {
  JudgeContext context;
  context.dtype = data.dtype;
  context.max_abs_v = data.max_abs_v;
  context.score_bound = data.score_bound;
  return context;
}

std::vector<GateResult> judge_output(const CaseData& data, const std::vector<float>& o) {
  return judge(compare(o, data.reference_quantised.o, data.shape, kTolerances.bad_threshold),
               compare(o, data.reference_kernel.o, data.shape, kTolerances.bad_threshold),
               data.shape, kTolerances, context_of(data));
}

std::string failures(const std::vector<GateResult>& gates) {
  std::string names;
  for (const GateResult& gate : gates) {
    if (!gate.pass) names += (names.empty() ? "" : " ") + gate.name;
  }
  return names;
}

std::vector<float> stored_as(std::vector<float> o, Dtype dtype) {
  for (float& value : o) value = decode_16(encode_16(value, dtype), dtype);
  return o;
}

// What an exact kernel with a rounded output gets: passes at every length, mask, family and format.
TEST(Gates, AnExactKernelPasses) {
  for (const Dtype dtype : {Dtype::kE4M3, Dtype::kE5M2}) {
    for (const char* family : {"uniform", "normal"}) {
      for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
        for (const std::int64_t seq : {1, 7, 31, 32, 100, 512}) {
          const auto data = make_case(make_shape(seq, mask, family), 1, dtype);
          for (const Dtype output : {Dtype::kHalf, Dtype::kBFloat16}) {
            const auto gates = judge_output(*data, stored_as(data->reference_kernel.o, output));
            std::string details;
            for (const GateResult& gate : gates) details += gate.name + " " + gate.detail + "\n";
            EXPECT_EQ(failures(gates), "")
                << name_of(dtype) << " " << family << " " << name_of(mask) << " seq " << seq << " "
                << name_of(output) << "\n"
                << details;
          }
        }
      }
    }
  }
}

TEST(Gates, ComeInOrderWithTheirThresholds) {
  const auto data = make_case(make_shape(64), 0);
  const auto gates = judge_output(*data, data->reference_kernel.o);
  std::vector<std::string> names;
  std::vector<double> thresholds;
  for (const GateResult& gate : gates) {
    names.push_back(gate.name);
    thresholds.push_back(gate.threshold);
    EXPECT_TRUE(gate.detail.empty());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"max_abs_err", "mean_abs_err", "pct_bad", "rel_l2",
                                             "kernel_abs", "kernel_rel_l2"}));
  EXPECT_EQ(thresholds, (std::vector<double>{0.06, 0.02, 1.0, 0.06, 0.01, 0.005}));
}

// Nothing but P in E4M3 is wrong with this model, and its first rows are further off than 0.01.
TEST(Gates, AbsoluteErrorIsNotAskedOfFp8WeightsThatFewKeysShare) {
  const auto data = make_case(make_shape(129, Mask::kCausal), 0);
  const ModelRun model = run_model(data->q, data->k, data->v, sizes_of(data->shape),
                                   data->softmax_scale, {.weights = Weights::kE4M3});
  const Metrics kernel =
      compare(model.attention.o, data->reference_kernel.o, data->shape, kTolerances.bad_threshold);
  EXPECT_GT(kernel.max_abs_err, kTolerances.abs_kernel);
  JudgeContext context = context_of(*data);
  context.fp8_p = true;
  EXPECT_EQ(failures(judge(kernel, kernel, data->shape, kTolerances, context)), "");
  context.fp8_p = false;
  EXPECT_NE(failures(judge(kernel, kernel, data->shape, kTolerances, context)).find("kernel_abs"),
            std::string::npos);
  // A user's tensors may be as peaked; drawn ones without a mask are not.
  context.fp8_p = true;
  EXPECT_TRUE(absolute_kernel_gate_applies(make_shape(129), context));
  context.drawn = false;
  EXPECT_FALSE(absolute_kernel_gate_applies(make_shape(129), context));
}

// FP8 tensor cores cut every product of a score: the rounding model, right but for its roundings,
// is off by more than 2^-12 |q| |k| where one key has a row's weight, and by less than the gate
// allows. Keys left out are seen all the same.
TEST(Gates, LseOfFp8TensorCoresIsAllowedWhatTheyCut) {
  constexpr double kSumError = 0x1p-4;
  double largest = 0.0;
  for (const char* family : {"needle", "sink", "peaked", "outliers"}) {
    for (const int head_dim : {64, 128, 256}) {
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        SCOPED_TRACE(testing::Message() << family << " " << head_dim << " seed " << seed);
        Shape shape = make_shape(16, Mask::kNone, family);
        shape.head_dim = head_dim;
        const auto data = make_case(shape, seed);
        const ModelRun model =
            run_model(data->q, data->k, data->v, sizes_of(data->shape), data->softmax_scale,
                      {.weights = Weights::kE4M3, .accumulator = Accumulator::kTruncated13});
        JudgeContext context = context_of(*data);
        context.fp8_p = true;
        const Metrics lse = compare_lse(model.attention.lse, data->reference_kernel.lse, shape);
        const GateResult gate = judge_lse(lse, shape, context);
        EXPECT_TRUE(gate.pass) << gate.detail;
        // The rounding model sums weights before it rounds them: what is allowed for scores alone
        // covers it.
        EXPECT_LT(gate.value, gate.threshold - kSumError);
        largest = std::max(largest, lse.max_abs_err / data->score_bound);
        std::vector<float> fewer = data->reference_kernel.lse;
        fewer.front() -= std::log(2.0F) + static_cast<float>(gate.threshold);
        EXPECT_FALSE(
            judge_lse(compare_lse(fewer, data->reference_kernel.lse, shape), shape, context).pass);
      }
    }
  }
  EXPECT_GT(largest, 4 * 0x1p-12);
}

// The reason for gate 4: on long sequences |O| is small.
TEST(Gates, AllZerosFailAtEveryLength) {
  for (const std::int64_t seq : {32, 512, 1024}) {
    const auto data = make_case(make_shape(seq), 0);
    const auto gates = judge_output(*data, std::vector<float>(data->reference_kernel.o.size()));
    EXPECT_NE(failures(gates).find("rel_l2"), std::string::npos) << seq;
    EXPECT_NE(failures(gates).find("kernel_rel_l2"), std::string::npos) << seq;
  }
}

TEST(Gates, SmallWrongnessFails) {
  const auto data = make_case(make_shape(512), 0);
  const std::vector<float>& exact = data->reference_kernel.o;
  std::vector<float> scaled = exact;
  for (float& value : scaled) value *= 1.006F;
  EXPECT_NE(failures(judge_output(*data, scaled)), "") << "0.6 % too large";
  std::vector<float> one_row = exact;
  std::fill_n(one_row.begin(), 64, 0.0F);
  EXPECT_NE(failures(judge_output(*data, one_row)), "") << "one row of 1024 missing";
  std::vector<float> swapped = exact;
  std::swap_ranges(swapped.begin(), swapped.begin() + 512 * 64, swapped.begin() + 512 * 64);
  EXPECT_NE(failures(judge_output(*data, swapped)), "") << "heads exchanged";
  std::vector<float> nan = exact;
  nan.back() = std::nanf("");
  EXPECT_EQ(failures(judge_output(*data, nan)),
            "max_abs_err mean_abs_err pct_bad rel_l2 kernel_abs kernel_rel_l2");
}

TEST(Gates, AFailureTellsWhereGotAndWant) {
  const auto data = make_case(make_shape(32), 0);
  std::vector<float> o = data->reference_kernel.o;
  o[(32 + 5) * 64 + 7] = 3.0F;  // head 1, row 5, dim 7
  for (const GateResult& gate : judge_output(*data, o)) {
    if (gate.name != "kernel_abs") continue;
    EXPECT_FALSE(gate.pass);
    EXPECT_NE(gate.detail.find("batch 0, head 1, row 5, dim 7"), std::string::npos) << gate.detail;
    EXPECT_NE(gate.detail.find("got 3, want "), std::string::npos) << gate.detail;
    EXPECT_NE(gate.detail.find("is not < 0.01"), std::string::npos) << gate.detail;
  }
}

TEST(Gates, NanNeverPasses) {
  Metrics nan;
  nan.max_abs_err = nan.mean_abs_err = nan.pct_bad = nan.rel_l2 =
      std::numeric_limits<double>::quiet_NaN();
  const Shape shape = make_shape(64);
  for (const GateResult& gate : judge(nan, nan, shape, kTolerances, {})) {
    EXPECT_FALSE(gate.pass) << gate.name;
  }
  Tolerances broken = kTolerances;
  broken.rel_l2_kernel = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(failures(judge({}, {}, shape, broken, {})), "");
  // Even an infinite tolerance does not let a NaN output through.
  Tolerances lax = kTolerances;
  lax.max_abs_err = lax.mean_abs_err = lax.rel_l2_quantised = lax.abs_kernel = lax.rel_l2_kernel =
      std::numeric_limits<double>::infinity();
  lax.pct_bad = 100.0;
  const auto data = make_case(shape, 0);
  std::vector<float> o = data->reference_kernel.o;
  o[0] = std::nanf("");
  const Metrics metrics = compare(o, data->reference_kernel.o, shape, kTolerances.bad_threshold);
  for (const GateResult& gate : judge(metrics, metrics, shape, lax, {})) {
    EXPECT_FALSE(gate.pass) << gate.name;
  }
}

TEST(Gates, BoundaryValuesAreAsSpecified) {
  Metrics quantised;
  quantised.max_abs_err = 0.06;
  quantised.mean_abs_err = 0.02;
  quantised.pct_bad = 1.0;
  quantised.rel_l2 = 0.06;
  Metrics kernel;
  EXPECT_EQ(failures(judge(quantised, kernel, make_shape(64), kTolerances, {})), "");
  kernel.max_abs_err = 0.01;
  kernel.rel_l2 = 0.005;
  EXPECT_EQ(failures(judge(quantised, kernel, make_shape(64), kTolerances, {})),
            "kernel_abs kernel_rel_l2");
}

TEST(Gates, AbsoluteGatesAreForTheNamedShapes) {
  const auto applies = [](const Shape& shape, JudgeContext context = {}) {
    return absolute_gates_apply(shape, context);
  };
  EXPECT_TRUE(applies(make_shape(32)));
  EXPECT_FALSE(applies(make_shape(31)));
  EXPECT_FALSE(applies(make_shape(64, Mask::kCausal)));
  EXPECT_FALSE(applies(make_shape(64, Mask::kNone, "normal")));
  Shape wide = make_shape(64);
  wide.inputs.high = 2.0;
  EXPECT_FALSE(applies(wide));
  EXPECT_FALSE(applies(make_shape(64), {.dtype = Dtype::kE5M2}));
  EXPECT_FALSE(applies(make_shape(64), {.drawn = false}));
}

TEST(Gates, Fp8PHasItsOwnThreshold) {
  Metrics kernel;
  kernel.rel_l2 = 0.02;
  EXPECT_EQ(failures(judge({}, kernel, make_shape(64), kTolerances, {})), "kernel_rel_l2");
  EXPECT_EQ(failures(judge({}, kernel, make_shape(64), kTolerances, {.fp8_p = true})), "");
}

TEST(LseGate, SeesOneKeyTooFewAmong2048) {
  const auto data = make_case(make_shape(32), 0);
  const JudgeContext context = context_of(*data);
  EXPECT_LT(lse_tolerance(64, context), std::log(2048.0 / 2047.0));
  std::vector<float> lse = data->reference_kernel.lse;
  const auto judged = [&](const std::vector<float>& got) {
    return judge_lse(compare_lse(got, data->reference_kernel.lse, data->shape), data->shape,
                     context);
  };
  EXPECT_TRUE(judged(lse).pass);
  lse[33] += 5e-4F;
  const GateResult gate = judged(lse);
  EXPECT_EQ(gate.name, "lse");
  EXPECT_FALSE(gate.pass);
  EXPECT_NE(gate.detail.find("head 1, row 1"), std::string::npos) << gate.detail;
  for (float& value : lse) value *= 1.442695F;  // log2 instead of ln
  EXPECT_FALSE(judged(lse).pass);
}

TEST(Case, HoldsBothReferencesAndItsBounds) {
  const auto data = make_case(make_shape(100), 3);
  EXPECT_EQ(data->seed, 3U);
  EXPECT_FLOAT_EQ(data->softmax_scale, 0.125F);
  EXPECT_NE(data->reference_quantised.o, data->reference_kernel.o);
  EXPECT_GT(data->max_abs_v, 0.99);
  EXPECT_LE(data->max_abs_v, 1.0);
  // Scores of 64-dim uniform(-1, 1): ||q|| ||k|| / 8 is 64 / 3 / 8 on average.
  EXPECT_GT(data->score_bound, 64.0 / 3 / 8);
  EXPECT_LT(data->score_bound, 8.0);
  EXPECT_EQ(data->saturated_infinities(), 0);
  Shape unknown = make_shape(8);
  unknown.inputs.family = "nonsense";
  EXPECT_THROW(static_cast<void>(make_case(unknown, 0)), std::invalid_argument);
}

}  // namespace
}  // namespace fp8_sdpa::reference
