#include "reference/judge/gates.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "reference/inputs/inputs.hpp"

namespace fp8_sdpa::reference {
namespace {

std::string format(const char* pattern, double a, double b) {
  constexpr int kSize = 96;
  char text[kSize];
  std::snprintf(text, sizeof(text), pattern, a, b);
  return text;
}

std::string describe(const Element& element) {
  return "worst element (batch " + std::to_string(element.batch) + ", head " +
         std::to_string(element.head) + ", row " + std::to_string(element.row) + ", dim " +
         std::to_string(element.dim) +
         "): " + format("got %.9g, want %.9g", element.got, element.want);
}

GateResult gate(const char* name, double value, double threshold, bool strict,
                const Metrics& metrics, const Element& worst) {
  GateResult result;
  result.name = name;
  result.value = value;
  result.threshold = threshold;
  // Written so that a NaN on either side fails.
  result.pass = metrics.non_finite == 0 && (strict ? value < threshold : value <= threshold);
  if (!result.pass) {
    result.detail =
        format(strict ? "%.6g is not < %.6g; " : "%.6g is not <= %.6g; ", value, threshold) +
        describe(worst);
    if (metrics.non_finite > 0) {
      result.detail += "; " + std::to_string(metrics.non_finite) +
                       " element(s) NaN or infinite on one side only, or missing";
    }
  }
  return result;
}

/// E5M2 has one mantissa bit less than E4M3, so twice its rounding error. The tolerance is stated
/// for E4M3.
double rounding_factor(Dtype dtype) { return dtype == Dtype::kE5M2 ? 2.0 : 1.0; }

}  // namespace

bool absolute_gates_apply(const Shape& shape, const JudgeContext& context) {
  constexpr std::int64_t kSmallest = 32;  // keys that average the rounding errors of V
  return context.drawn && context.dtype == Dtype::kE4M3 && shape.mask == Mask::kNone &&
         shape.inputs.family == "uniform" && shape.inputs.low == -1.0 && shape.inputs.high == 1.0 &&
         shape.seq_q >= kSmallest && shape.seq_kv >= kSmallest;
}

bool fixed_gates_apply(const Shape& shape, const JudgeContext& context) {
  const InputFamily* family = find_input_family(shape.inputs.family);
  return !context.drawn || family == nullptr || family->fixed_tolerances;
}

bool absolute_kernel_gate_applies(const Shape& shape, const JudgeContext& context) {
  return !context.fp8_p || (context.drawn && shape.mask == Mask::kNone);
}

std::vector<GateResult> judge(const Metrics& quantised, const Metrics& kernel, const Shape& shape,
                              const Tolerances& tolerances, const JudgeContext& context) {
  std::vector<GateResult> gates;
  if (absolute_gates_apply(shape, context)) {
    gates.push_back(gate("max_abs_err", quantised.max_abs_err, tolerances.max_abs_err, false,
                         quantised, quantised.worst));
    gates.push_back(gate("mean_abs_err", quantised.mean_abs_err, tolerances.mean_abs_err, false,
                         quantised, quantised.worst));
    gates.push_back(
        gate("pct_bad", quantised.pct_bad, tolerances.pct_bad, false, quantised, quantised.worst));
  }
  if (!fixed_gates_apply(shape, context)) return gates;
  gates.push_back(gate("rel_l2", quantised.rel_l2,
                       tolerances.rel_l2_quantised * rounding_factor(context.dtype), false,
                       quantised, quantised.worst_head));
  // O is an average of rows of V: its error scales with them. The tolerance is stated for |V| <= 1.
  if (absolute_kernel_gate_applies(shape, context)) {
    gates.push_back(gate("kernel_abs", kernel.max_abs_err,
                         tolerances.abs_kernel * std::max(1.0, context.max_abs_v), true, kernel,
                         kernel.worst));
  }
  gates.push_back(gate("kernel_rel_l2", kernel.rel_l2,
                       context.fp8_p ? tolerances.rel_l2_kernel_fp8_p : tolerances.rel_l2_kernel,
                       true, kernel, kernel.worst_head));
  return gates;
}

// LSE = max + log(sum of exp(score - max)). An error e in every score moves it by at most e, a
// relative error r of the sum by about r.
// Scores: products of FP8 codes are exact in fp32; D additions, each truncated or rounded to 2^-23
// of a partial sum, which Cauchy-Schwarz keeps within score_bound; a few more roundings for the
// scale. With a factor 2 to spare: (D + 8) * 2^-22 * score_bound.
// Kernels that round P to FP8 may use FP8 tensor cores. Each of the D / 32 multiplies cuts 32
// products and the partial sum, toward zero, to 13 fractional bits of the largest of them: half a
// step each on average, 2^-14 of the largest. Where all products have one sign, and the row's
// weight is with such keys, these add up: the largest is the partial sum, which is i / (D / 32) of
// score_bound after i multiplies, so 33 * 2^-14 * (D / 32 + 1) / 2 * score_bound in all.
// Sum: fp32 terms within 2^-22 (ex2.approx) summed in tiles, n / tile + tile additions of 2^-24
// each: below 2^-14 up to 16k keys; twice that. A sum over P already rounded to E4M3 has a relative
// error of at most 2^-4, a half step of three mantissa bits.
// One key too many or too few among 2048 moves the LSE by 5e-4, which a half-P kernel's 1.7e-4 at
// D = 64 sees.
double lse_tolerance(int head_dim, const JudgeContext& context) {
  constexpr double kSumError = 0x1p-13;
  constexpr double kFp8SumError = 0x1p-4;
  constexpr double kFp8Depth = 32.0;
  constexpr double kCut = 0x1p-14;
  constexpr double kAdditionError = 0x1p-22;
  constexpr double kScaleRoundings = 8.0;
  const double score_error = context.fp8_p
                                 ? (kFp8Depth + 1.0) * kCut * (head_dim / kFp8Depth + 1.0) / 2.0
                                 : (head_dim + kScaleRoundings) * kAdditionError;
  const bool rounded = context.fp8_p && context.lse_sum != LseSum::kExact;
  return score_error * context.score_bound + (rounded ? kFp8SumError : kSumError);
}

GateResult judge_lse(const Metrics& lse, const Shape& shape, const JudgeContext& context) {
  return gate("lse", lse.max_abs_err, lse_tolerance(shape.head_dim, context), false, lse,
              lse.worst);
}

}  // namespace fp8_sdpa::reference
