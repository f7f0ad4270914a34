#include "benchmarks/peers/judged_run.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "benchmarks/peers/peer.hpp"
#include "reference/judge/budget.hpp"
#include "reference/judge/harness.hpp"

namespace fp8_sdpa::bench {
namespace {

reference::GateResult rerun_gate(const std::vector<std::uint16_t>& first,
                                 const std::vector<std::uint16_t>& second) {
  reference::GateResult gate;
  gate.name = "rerun_equal";
  for (std::size_t i = 0; i < first.size(); ++i) gate.value += first[i] == second[i] ? 0 : 1;
  gate.pass = gate.value == 0;
  if (!gate.pass) gate.detail = "O's bits differ between two runs";
  return gate;
}

/// Every row sees a key, so that all of it is finite.
std::vector<reference::GateResult> lse_gates(const std::vector<float>& lse,
                                             const SampledCase& sampled, const Formats& formats,
                                             LseSum sum) {
  const reference::CaseData& rows = *sampled.sample.rows;
  const auto wrong =
      std::count_if(lse.begin(), lse.end(), [](float value) { return !std::isfinite(value); });
  reference::Shape as_rows = sampled.whole->shape;
  as_rows.head_dim = 1;
  const auto errors =
      reference::compare_lse(reference::rows_of(lse, as_rows, sampled.sample.ranges),
                             rows.reference_kernel.lse, rows.shape);
  const reference::JudgeContext context{
      rows.dtype,     formats.weights == reference::Weights::kE4M3,
      rows.max_abs_v, rows.score_bound,
      rows.drawn,     sum};
  return {reference::count_gate("lse_finite", wrong,
                                std::to_string(wrong) + " elements of LSE are NaN or infinite"),
          reference::judge_lse(errors, rows.shape, context)};
}

}  // namespace

Formats formats_of(const Variant& variant, Dtype output) {
  return {reference::model_of(variant.weights, output).weights, output};
}

Result<JudgedRun> run_and_judge(const Workload& workload, const Plan& plan,
                                const SampledCase& sampled, const Formats& formats, double scale,
                                const reference::Tolerances& tolerances, bool budgets_only) {
  auto bits = workload.run(plan);
  if (!bits.ok()) return bits.status();
  const auto again = workload.run(plan);
  if (!again.ok()) return again.status();
  JudgedRun judged;
  judged.result = judge_output(sampled, decode_output(*bits, formats.output, scale), formats,
                               tolerances, budgets_only);
  judged.result.variant = plan.variant().name;
  judged.result.gates.push_back(rerun_gate(*bits, *again));
  if (workload.problem().lse != nullptr && plan.variant().family != Family::kPeer) {
    const auto lse = workload.lse();
    if (!lse.ok()) return lse.status();
    for (auto& gate : lse_gates(*lse, sampled, formats, workload.problem().lse_sum)) {
      judged.result.gates.push_back(std::move(gate));
    }
  }
  judged.result.pass = std::all_of(judged.result.gates.begin(), judged.result.gates.end(),
                                   [](const auto& gate) { return gate.pass; });
  judged.bits = std::move(*bits);
  return judged;
}

}  // namespace fp8_sdpa::bench
