#include "benchmarks/peers/sampled_case.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "reference/formats/quantise.hpp"

namespace fp8_sdpa::bench {

using reference::CaseData;
using reference::GateResult;
using reference::Shape;

Result<SampledCase> sample_case(const Shape& shape, std::uint64_t seed, std::int64_t max_scores) {
  CaseData whole;
  whole.shape = shape;
  whole.seed = seed;
  whole.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  auto inputs = reference::draw_inputs(shape, seed);
  if (!inputs.ok()) return inputs.status();
  whole.inputs = std::move(*inputs);
  const std::int64_t q_heads = std::int64_t{shape.batch} * shape.heads_q;
  const std::int64_t kv_heads = std::int64_t{shape.batch} * shape.heads_kv;
  const auto quantise = [&](const std::vector<float>& values, std::int64_t heads,
                            std::int64_t rows) {
    return reference::quantise_with_one_scale(values, heads, rows * shape.head_dim, whole.dtype);
  };
  whole.q = quantise(whole.inputs.q, q_heads, shape.seq_q);
  whole.k = quantise(whole.inputs.k, kv_heads, shape.seq_kv);
  whole.v = quantise(whole.inputs.v, kv_heads, shape.seq_kv);
  SampledCase sampled;
  sampled.sample = reference::take_sample(whole, reference::sample_rows_of(shape, max_scores));
  whole.inputs = {};
  sampled.whole = std::make_shared<const CaseData>(std::move(whole));
  return sampled;
}

reference::CaseResult judge_output(const SampledCase& sampled, const std::vector<float>& o,
                                   const Formats& formats, const reference::Tolerances& tolerances,
                                   bool budgets_only) {
  const Shape& shape = sampled.whole->shape;
  const std::int64_t elements =
      std::int64_t{shape.batch} * shape.heads_q * shape.seq_q * shape.head_dim;
  if (static_cast<std::int64_t>(o.size()) != elements) {
    reference::CaseResult result;
    result.shape = shape.name;
    result.seed = sampled.whole->seed;
    GateResult gate{
        "output_size", static_cast<double>(o.size()), static_cast<double>(elements), false,
        "O has " + std::to_string(o.size()) + " elements, expected " + std::to_string(elements)};
    result.gates = {gate};
    return result;
  }
  return judge_sample(sampled.sample, rows_of(o, shape, sampled.sample.ranges), formats, tolerances,
                      budgets_only);
}

}  // namespace fp8_sdpa::bench
