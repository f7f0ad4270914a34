// Metrics of an output against a reference, and the gates that judge them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::reference {

/// One element, by its place in (batch, heads_q, seq_q, head_dim), with both values.
struct Element {
  std::int64_t batch = 0, head = 0, row = 0, dim = 0;
  double got = 0;
  double want = 0;
};

/// Errors of an output against one reference. A NaN or infinity in `got` where `want` is finite, a
/// finite value where `want` is NaN, or a wrong number of elements makes every error infinite (and
/// pct_bad 100): nothing non-finite passes a comparison, and no NaN is laundered. An element that
/// both sides agree is NaN, or the same infinity, has no error.
struct Metrics {
  double max_abs_err = 0;
  double mean_abs_err = 0;
  double max_rel_err = 0;       ///< denominator floored at 1e-3; reported, not gated
  double pct_bad = 0;           ///< percent of elements with an error > bad_threshold
  double rel_l2 = 0;            ///< the worst (batch, head)'s ||got - want|| / ||want||
  std::int64_t non_finite = 0;  ///< elements that made the errors infinite
  Element worst;                ///< where max_abs_err is
  Element worst_head;           ///< (batch, head) of rel_l2, with its worst element

  // Over the whole tensor; reported, not gated.
  double rmse = 0;      ///< sqrt(mean((got - want)^2))
  double rel_rmse = 0;  ///< ||got - want|| / ||want||
  double rel_l1 = 0;    ///< sum |got - want| / sum |want|
  double cosine = 1;    ///< got . want / (||got|| ||want||); 1 where both are zero
};

/// Compares `got` with `want`, both (batch, heads_q, seq_q, head_dim) contiguous.
Metrics compare(const std::vector<float>& got, const std::vector<float>& want, const Shape& shape,
                double bad_threshold);

/// Compares two log-sum-exps, (batch, heads_q, seq_q) contiguous, by absolute error. -inf where
/// `want` is -inf, and only there, is right. `dim` of the elements is 0.
Metrics compare_lse(const std::vector<float>& got, const std::vector<float>& want,
                    const Shape& shape);

/// One gate's verdict.
struct GateResult {
  std::string
      name;  ///< "max_abs_err", "mean_abs_err", "pct_bad", "rel_l2", "kernel_abs",
             ///< "kernel_rel_l2", "budget_row", "budget_head", "budget_tensor", "lse",
             ///< "lse_row", "lse_head", "lse_tensor", "guards", "inputs_unchanged", "rerun_equal"
  double value = 0;
  double threshold = 0;
  bool pass = false;
  std::string detail;  ///< on failure: the worst element's index, got and want
};

/// What the thresholds depend on beside the tolerances.
struct JudgeContext {
  Dtype dtype = Dtype::kE4M3;  ///< of Q, K and V
  bool fp8_p = false;          ///< the kernel rounds P to FP8
  double max_abs_v = 1.0;      ///< largest finite |V|: no |O| is larger
  double score_bound = 0.0;    ///< largest scale * ||q_i|| * ||k_j||: no |score| is larger
  bool drawn = true;           ///< inputs are drawn as shape.inputs says (not a user's tensors)
  LseSum lse_sum = LseSum::kDenominator;  ///< what the LSE is of
};

/// Whether the absolute gates 1 to 3 are stated for this shape: no mask, uniform(-1, 1) inputs,
/// E4M3, at least 32 queries and keys.
bool absolute_gates_apply(const Shape& shape, const JudgeContext& context);

/// Whether the relative gates and those of the kernel's own error are meant for these inputs: a
/// family for which they are stated, or a user's tensors. Other families reach what a fixed
/// tolerance cannot ask (few keys with weight, outliers) and are judged by error budgets
/// (budget.hpp).
bool fixed_gates_apply(const Shape& shape, const JudgeContext& context);

/// Whether "kernel_abs" is meant: the absolute gates are stated for no mask and drawn inputs. A
/// weight in E4M3 is off by up to 2^-4 of itself; n weights together by 2^-4 / sqrt(3 n) and less,
/// so that an exact kernel that rounds P meets 0.01 |V| where a row sees many keys of like weight,
/// and not where it sees a handful: the first rows under a mask, or peaked rows of a user's
/// tensors. Those are judged by budget_row, which knows the weights. Kernels that keep P in half
/// always meet it.
bool absolute_kernel_gate_applies(const Shape& shape, const JudgeContext& context);

/// The gates of an output. `quantised` compares with the reference on unquantised inputs, `kernel`
/// with the reference on dequantised ones. In this order: max_abs_err, mean_abs_err, pct_bad (these
/// three where absolute_gates_apply), rel_l2, kernel_abs, kernel_rel_l2 (these three where
/// fixed_gates_apply; kernel_abs where absolute_kernel_gate_applies).
std::vector<GateResult> judge(const Metrics& quantised, const Metrics& kernel, const Shape& shape,
                              const Tolerances& tolerances, const JudgeContext& context);

/// The "lse" gate, from compare_lse() against the reference on dequantised inputs.
GateResult judge_lse(const Metrics& lse, const Shape& shape, const JudgeContext& context);

/// The "lse" gate's threshold, an absolute error; derived in gates.cpp.
double lse_tolerance(int head_dim, const JudgeContext& context);

}  // namespace fp8_sdpa::reference
