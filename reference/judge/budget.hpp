// Error budgets: how far from the oracle a right kernel may be, from a model that rounds where it
// rounds. They judge any inputs, masks and lengths, where fixed tolerances hold for the inputs that
// they were stated for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/judge/gates.hpp"
#include "reference/oracle/model.hpp"

namespace fp8_sdpa::reference {

struct CaseData;

/// Query rows [first, first + rows) of every (batch, head).
struct RowRange {
  std::int64_t first = 0, rows = 0;
};

/// A budget of one case and one kind of kernel: mean square errors, before the multiple. Each is
/// the largest of
/// - the model's own error against the oracle,
/// - what its roundings' variances lead to expect (ModelRun::expected_square): the model may be
///   lucky in a row, the variances know nothing of errors that add up,
/// - what rounding P to E4M3 does relative to other maxima than the model's
///   (weight_rounding.hpp): where many weights agree, the model may be lucky in all of them. For a
///   row the maximum is chance, so it is the mean over the maxima, which the row's multiple is made
///   for. The rows of a head, or of the tensor, may all have the same luck, which a multiple for
///   many draws does not cover, so it is that of the worst maximum.
///
/// A kernel may take l from the tensor cores, as a column of ones beside V: a sum of rounded
/// weights, cut to 13 fractional bits within a tile as the sums of O are. Its budget is the same. A
/// rounding d of weight i then moves O by d (v_i - O) / l instead of d v_i / l: over a row, where
/// every weight meets its value, the mean square of v - O is that of v less O^2, so that it errs
/// less, unless the largest weights meet values far from O ("sink" and "needle" try that); and what
/// cuts l low cuts O's numerator low. Weights that are all off by the same cancel.
struct RowBudgets {
  std::vector<double> row;   ///< (batch, heads_q, seq_q)
  std::vector<double> head;  ///< (batch, heads_q)
  double tensor = 0.0;
};
struct Budget : RowBudgets {
  /// Of exp(LSE - the oracle's) against 1: what l, a sum of weights before or after they are
  /// rounded, is off by, relative to the exact one. l is a column of O's numerator, for V = 1, so
  /// the same model and the same multiples hold; model.cpp has the derivation.
  RowBudgets lse;
};

/// How often the budget of `rows` rows together may be exceeded, in rms: 1.5 + 4.5 / sqrt(rows).
///
/// A right kernel is another draw from the distribution that the model is one draw from: its tiles,
/// and so its running maxima and roundings, are elsewhere. The errors of one row's elements hang
/// together (one weight that is rounded moves them all), so a row counts as one draw:
/// - One row: roundings are bounded, by sqrt(3) of their deviation each; the sum of many is normal.
///   6 deviations are exceeded by 2 in 10^9 rows.
/// - n rows: the mean square of n draws strays from its expectation by sqrt(2 / n) of it and the
///   root by half of that; 4.5 / sqrt(n) is six times as much.
/// - Many rows: 1.5 is left for what a right kernel may do otherwise than the model: the order of
///   its sums, an approximate exp2, P rounded toward another maximum.
/// Chosen before any fault was tried against it.
double budget_multiple(std::int64_t rows);

/// The model of a kernel that rounds P to `weights`, E4M3, half or bf16, and writes `output`.
ModelOptions model_of(Dtype weights, Dtype output);
/// The same of E4M3 or half.
ModelOptions model_of(bool fp8_p, Dtype output);

/// The budget of a case; computed once per case and options, then shared.
std::shared_ptr<const Budget> budget_of(const CaseData& data, const ModelOptions& options);
/// The same of some rows of every (batch, head) alone.
std::shared_ptr<const Budget> budget_of(const CaseData& data, const ModelOptions& options,
                                        const RowRange& range);

/// The gates "budget_row", "budget_head" and "budget_tensor": the rms error against `want` of the
/// row, head or tensor that is worst for its allowance; value and threshold are divided by the rms
/// of `want` over the head, or the tensor. Elements that agree on being NaN or infinite are left
/// out; one that does not fails all three. got and want are (batch, heads_q, seq_q, head_dim).
std::vector<GateResult> judge_budget(const std::vector<float>& got, const std::vector<float>& want,
                                     const Shape& shape, const Budget& budget);

/// The gates "lse_row", "lse_head" and "lse_tensor": the same of an LSE, (batch, heads_q, seq_q).
/// Where P stays in half the "lse" gate is the sharper one.
std::vector<GateResult> judge_lse_budget(const std::vector<float>& got,
                                         const std::vector<float>& want, const Shape& shape,
                                         const Budget& budget);

}  // namespace fp8_sdpa::reference
