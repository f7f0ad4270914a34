#include "benchmarks/peers/judged_run.hpp"

#include <utility>

#include "benchmarks/peers/peer.hpp"

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

}  // namespace

Formats formats_of(const Variant& variant) {
  return {variant.fp8_p ? reference::Weights::kE4M3 : reference::Weights::kHalf, Dtype::kHalf};
}

Result<JudgedRun> run_and_judge(const Workload& workload, const Plan& plan,
                                const SampledCase& sampled, const Formats& formats, double scale,
                                const reference::Tolerances& tolerances) {
  auto bits = workload.run(plan);
  if (!bits.ok()) return bits.status();
  const auto again = workload.run(plan);
  if (!again.ok()) return again.status();
  JudgedRun judged;
  judged.result =
      judge_output(sampled, decode_output(*bits, formats.output, scale), formats, tolerances);
  judged.result.variant = plan.variant().name;
  judged.result.gates.push_back(rerun_gate(*bits, *again));
  judged.result.pass = judged.result.pass && judged.result.gates.back().pass;
  judged.bits = std::move(*bits);
  return judged;
}

}  // namespace fp8_sdpa::bench
