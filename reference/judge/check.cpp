#include "reference/judge/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fp8_sdpa/plan.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/text.hpp"
#include "reference/judge/budget.hpp"
#include "reference/judge/harness.hpp"

namespace fp8_sdpa::reference {

GateResult judge_rerun(const RunOutput& first, const RunOutput& second) {
  std::int64_t count = 0;
  std::size_t where = first.o.size();
  for (std::size_t i = 0; i < first.o.size(); ++i) {
    if (first.o[i] == second.o[i]) continue;
    if (count++ == 0) where = i;
  }
  if (count == 0 && !(first == second)) {
    return count_gate("rerun_equal", 1, "the LSE of two runs differs");
  }
  return count_gate(
      "rerun_equal", count,
      "O's bits differ between two runs, first at element " + std::to_string(where) + " of O");
}

namespace {

/// Gates of the whole error, that of FP8 inputs included; all others are of the kernel alone.
bool sees_quantisation(const GateResult& gate) {
  return gate.name == "max_abs_err" || gate.name == "mean_abs_err" || gate.name == "pct_bad" ||
         gate.name == "rel_l2";
}

}  // namespace

std::string CaseResult::failure() const {
  const auto failed =
      std::find_if(gates.begin(), gates.end(), [](const auto& g) { return !g.pass; });
  if (failed == gates.end()) return "";
  const std::string line = "gate " + failed->name + ": " + failed->detail;
  if (!sees_quantisation(*failed)) return line;
  const auto of_kernel = std::find_if(
      failed, gates.end(), [](const auto& gate) { return !gate.pass && !sees_quantisation(gate); });
  if (of_kernel != gates.end()) {
    return line + "; at fault: the kernel, which fails the gate " + of_kernel->name + " too";
  }
  return line + "; at fault: the quantisation to FP8, not the kernel, whose own rel_l2 of " +
         text_of(kernel.rel_l2) + " passes";
}

namespace {

Status serves_exactly(const Variant& variant, const Shape& shape, Dtype dtype, const Device& device,
                      const CheckOptions& options) {
  // supports() looks at addresses, never behind them: regions that cannot overlap will do.
  constexpr std::uintptr_t kRegion = std::uintptr_t{1} << 44;
  const auto at = [](std::uintptr_t region) { return reinterpret_cast<void*>(region * kRegion); };
  const Extent q{shape.batch,    shape.heads_q,          shape.seq_q,
                 shape.head_dim, options.sequence_major, 0};
  const Extent kv{shape.batch,    shape.heads_kv,         shape.seq_kv,
                  shape.head_dim, options.sequence_major, 0};
  Problem problem;
  problem.batch = shape.batch;
  problem.heads_q = shape.heads_q;
  problem.heads_kv = shape.heads_kv;
  problem.seq_q = shape.seq_q;
  problem.seq_kv = shape.seq_kv;
  problem.head_dim = shape.head_dim;
  problem.q = q.view(at(1), dtype);
  problem.k = kv.view(at(2), dtype);
  problem.v = value_view(value_extent(shape, options), options, at(3), value_dtype(dtype, options));
  problem.o = q.view(at(4), options.output);
  if (options.output == Dtype::kE4M3) problem.o_scale = static_cast<const float*>(at(7));
  problem.lse = options.lse ? static_cast<float*>(at(5)) : nullptr;
  problem.lse_sum = options.lse_sum;
  const auto* floats = static_cast<const float*>(at(6));
  problem.descales = {floats, floats, floats};
  problem.softmax_scale = 1.0F;
  problem.mask = shape.mask;
  if (options.edit) options.edit(problem);
  return variant.supports(problem, device);
}

}  // namespace

CheckOptions what_it_gives(const Variant& variant, const Shape& shape, Dtype dtype,
                           const Device& device, CheckOptions options) {
  if (variant.int8) options.values = variant.weights;
  if (!options.lse || serves_exactly(variant, shape, dtype, device, options).ok()) return options;
  CheckOptions without = options;
  without.lse = false;
  return serves_exactly(variant, shape, dtype, device, without).ok() ? without : options;
}

Status serves(const Variant& variant, const Shape& shape, Dtype dtype, const Device& device,
              const CheckOptions& options) {
  return serves_exactly(variant, shape, dtype, device,
                        what_it_gives(variant, shape, dtype, device, options));
}

namespace {

/// With every address shifted alike, to where nobody may look.
Problem moved(Problem p) {
  constexpr std::uintptr_t kFar = std::uintptr_t{1} << 40;
  const auto move = [](auto*& pointer) {
    if (pointer == nullptr) return;
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        reinterpret_cast<std::uintptr_t>(pointer) + kFar);
  };
  for (Tensor* tensor : {&p.q, &p.k, &p.v, &p.o}) move(tensor->data);
  move(p.o_scale);
  move(p.lse);
  move(p.descales.q);
  move(p.descales.k);
  move(p.descales.v);
  p.softmax_scale += 1.0F;
  return p;
}

/// check() of exactly these options.
Result<CaseResult> check_one(const Variant& variant, const CaseData& data, const Device& device,
                             const Tolerances& tolerances, const CheckOptions& options) {
  auto harness = Harness::make(data, device, options);
  if (!harness.ok()) return harness.status();
  const Result<Plan> planned = plan((*harness)->problem(), device, &variant, options.plan);
  if (!planned.ok()) return planned.status();
  const Result<RunOutput> output = (*harness)->run(*planned);
  if (!output.ok()) return output.status();
  CaseResult result = judge_run(variant, data, *output, tolerances, options);
  if (options.rerun) {
    // By a plan of other addresses, bound anew.
    Result<Plan> elsewhere = plan(moved((*harness)->problem()), device, &variant, options.plan);
    if (!elsewhere.ok()) return elsewhere.status();
    if (Status s = rebind(*elsewhere, (*harness)->problem()); !s.ok()) return s;
    const Result<RunOutput> again = (*harness)->run(*elsewhere);
    if (!again.ok()) return again.status();
    result.gates.push_back(judge_rerun(*output, *again));
  }
  (*harness)->judge_memory(result.gates);
  result.pass = true;
  for (const GateResult& gate : result.gates) result.pass = result.pass && gate.pass;
  return result;
}

/// The worse of two verdicts, and every gate that the other fails.
CaseResult merged(CaseResult first, const CaseResult& exact) {
  first.pass = first.pass && exact.pass;
  for (const GateResult& gate : exact.gates) {
    if (gate.pass) continue;
    first.gates.push_back(gate);
    first.gates.back().detail += " (asked for an LSE of exact sums)";
  }
  if (!(exact.kernel.rel_l2 <= first.kernel.rel_l2)) {
    first.quantised = exact.quantised;
    first.kernel = exact.kernel;
  }
  return first;
}

}  // namespace

Result<CaseResult> check(const Variant& variant, const CaseData& data, const Device& device,
                         const Tolerances& tolerances, const CheckOptions& asked) {
  CheckOptions options = what_it_gives(variant, data.shape, data.dtype, device, asked);
  auto result = check_one(variant, data, device, tolerances, options);
  if (!result.ok() || !options.lse || options.lse_sum == LseSum::kExact ||
      !variant.has_kernel_of_exact_sums(data.shape.head_dim)) {
    return result;
  }
  options.lse_sum = LseSum::kExact;
  const auto exact = check_one(variant, data, device, tolerances, options);
  if (!exact.ok()) return exact.status();
  return merged(std::move(*result), *exact);
}

CaseResult judge_run(const Variant& variant, const CaseData& data, const RunOutput& output,
                     const Tolerances& tolerances, const CheckOptions& options) {
  CaseResult result;
  result.shape = data.shape.name;
  result.seed = data.seed;
  result.variant = variant.name;
  result.output = output.o;
  result.log_sum_exp = output.lse;
  std::vector<float> o(result.output.size());
  const Dtype format = format_of_bits(options.output);
  for (std::size_t i = 0; i < o.size(); ++i) o[i] = decode_16(result.output[i], format);
  result.quantised = compare(o, data.reference_quantised.o, data.shape, tolerances.bad_threshold);
  result.kernel = compare(o, data.reference_kernel.o, data.shape, tolerances.bad_threshold);

  const JudgeContext context{data.dtype,       variant.fp8_p(), data.max_abs_v,
                             data.score_bound, data.drawn,      options.lse_sum};
  if (!options.budgets_only) {
    result.gates = judge(result.quantised, result.kernel, data.shape, tolerances, context);
  }
  const auto budget = budget_of(data, model_of(variant.weights, options.output));
  for (GateResult& gate : judge_budget(o, data.reference_kernel.o, data.shape, *budget)) {
    result.gates.push_back(std::move(gate));
  }
  if (options.lse) {
    result.gates.push_back(judge_lse(compare_lse(output.lse, data.reference_kernel.lse, data.shape),
                                     data.shape, context));
    if (variant.fp8_p()) {
      for (GateResult& gate :
           judge_lse_budget(output.lse, data.reference_kernel.lse, data.shape, *budget)) {
        result.gates.push_back(std::move(gate));
      }
    }
  }
  return result;
}

}  // namespace fp8_sdpa::reference
