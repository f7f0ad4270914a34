// A variant's output on the tensors that it is timed on, judged.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/measure/workload.hpp"
#include "benchmarks/peers/sampled_case.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

struct JudgedRun {
  std::vector<std::uint16_t> bits;  ///< of O, as Workload::output() returns them
  reference::CaseResult result;     ///< of judge_output(), and the gate "rerun_equal"; of ours
                                    ///< with an LSE also "lse_finite" and, of the sampled rows,
                                    ///< "lse"
};

/// What one of the library's variants rounds to.
Formats formats_of(const Variant& variant, Dtype output = Dtype::kHalf);

/// Runs the plan twice and judges what it left. `scale`: what decoded elements are multiplied by;
/// `budgets_only`: without the tolerances stated for named shapes.
Result<JudgedRun> run_and_judge(const Workload& workload, const Plan& plan,
                                const SampledCase& sampled, const Formats& formats, double scale,
                                const reference::Tolerances& tolerances, bool budgets_only = false);

}  // namespace fp8_sdpa::bench
