#include "reference/judge/sampled.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "fp8_sdpa/plan.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/parallel.hpp"
#include "reference/judge/harness.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr std::int64_t kRanges = 8;

GateResult judge_finite(const std::vector<std::uint16_t>& bits, Dtype output) {
  std::atomic<std::int64_t> count{0};
  parallel_chunks(std::ssize(bits), [&](std::int64_t first, std::int64_t last) {
    std::int64_t found = 0;
    for (std::int64_t i = first; i < last; ++i) {
      found += std::isfinite(decode_16(bits[static_cast<std::size_t>(i)], output)) ? 0 : 1;
    }
    count += found;
  });
  return count_gate("finite", count,
                    std::to_string(count) + " elements of O are NaN or infinite; no input is");
}

/// Of gates of one name the worst.
void keep_worst(GateResult other, std::vector<GateResult>& gates) {
  const auto same = std::find_if(gates.begin(), gates.end(),
                                 [&](const GateResult& gate) { return gate.name == other.name; });
  if (same == gates.end()) {
    gates.push_back(std::move(other));
    return;
  }
  const bool worse = other.value * same->threshold > same->value * other.threshold;
  if (same->pass && (!other.pass || worse)) *same = std::move(other);
}

/// Judges rows of a sample by their budgets; `rows` counts among the sampled ones.
std::vector<GateResult> judge_budgets(const CaseData& data, const std::vector<float>& got,
                                      const ModelOptions& model, const RowRange& rows) {
  Shape shape = data.shape;
  shape.seq_q = rows.rows;
  const auto budget = budget_of(data, model, rows);
  if (rows.rows == data.shape.seq_q) {
    return judge_budget(got, data.reference_kernel.o, shape, *budget);
  }
  return judge_budget(rows_of(got, data.shape, {rows}),
                      rows_of(data.reference_kernel.o, data.shape, {rows}), shape, *budget);
}

std::string name_of(const RowRange& range) {
  return "rows " + std::to_string(range.first) + " to " + std::to_string(range.first + range.rows);
}

}  // namespace

std::vector<RowRange> sample_rows(std::int64_t seq_q, std::int64_t rows) {
  if (seq_q <= 2 * kRanges * rows) return {{0, seq_q}};
  std::vector<RowRange> ranges;
  for (std::int64_t i = 0; i < kRanges; ++i) {
    ranges.push_back({i * (seq_q - rows) / (kRanges - 1), rows});
  }
  return ranges;
}

std::vector<RowRange> sample_rows_of(const Shape& shape, std::int64_t max_scores) {
  const std::int64_t scores_of_row = std::int64_t{shape.batch} * shape.heads_q * shape.seq_kv;
  if (scores_of_row * shape.seq_q <= max_scores) return {{0, shape.seq_q}};
  const std::int64_t rows = max_scores / scores_of_row / kRanges;
  return sample_rows(shape.seq_q, std::clamp<std::int64_t>(rows, 1, kSampledRows));
}

Sample take_sample(const CaseData& whole, std::vector<RowRange> ranges) {
  assert(whole.q.per_block == 0);
  CaseData part;
  part.shape = whole.shape;
  part.shape.seq_q = 0;
  for (const RowRange& range : ranges) {
    part.shape.seq_q += range.rows;
    for (std::int64_t row = range.first; row < range.first + range.rows; ++row) {
      part.keys_of_row.push_back(visible_keys(sizes_of(whole.shape), row));
    }
  }
  part.seed = whole.seed;
  part.dtype = whole.dtype;
  part.drawn = whole.drawn;
  part.softmax_scale = whole.softmax_scale;
  part.inputs.q = rows_of(whole.inputs.q, whole.shape, ranges);
  part.q.dtype = whole.q.dtype;
  part.q.codes = rows_of(whole.q.codes, whole.shape, ranges);
  part.q.descales = whole.q.descales;
  part.q.saturated_infinities = whole.q.saturated_infinities;
  part.k = whole.k;
  part.v = whole.v;
  return {std::move(ranges), with_references(std::move(part), whole.inputs.k, whole.inputs.v)};
}

CaseResult judge_sample(const Sample& sample, const std::vector<float>& got, const Formats& formats,
                        const Tolerances& tolerances, bool budgets_only) {
  const CaseData& data = *sample.rows;
  CaseResult result;
  result.shape = data.shape.name;
  result.seed = data.seed;
  result.quantised = compare(got, data.reference_quantised.o, data.shape, tolerances.bad_threshold);
  result.kernel = compare(got, data.reference_kernel.o, data.shape, tolerances.bad_threshold);
  const JudgeContext context{data.dtype, formats.weights == Weights::kE4M3, data.max_abs_v,
                             data.score_bound, data.drawn};
  std::vector<GateResult> of_all;
  if (!budgets_only) {
    of_all = judge(result.quantised, result.kernel, data.shape, tolerances, context);
    if (size_of(formats.output) != 2) {
      std::erase_if(of_all, [](const GateResult& gate) {
        return gate.name == "kernel_abs" || gate.name == "kernel_rel_l2";
      });
    }
  }
  ModelOptions model;
  model.weights = formats.weights;
  model.output = formats.output;
  const bool sampled = sample.ranges.size() > 1;
  std::int64_t first = 0;
  for (const RowRange& range : sample.ranges) {
    for (GateResult& gate : judge_budgets(data, got, model, {first, range.rows})) {
      if (!gate.pass && sampled) gate.detail = name_of(range) + ": " + gate.detail;
      keep_worst(std::move(gate), result.gates);
    }
    first += range.rows;
  }
  if (sampled) {
    for (GateResult& gate : judge_budgets(data, got, model, {0, first})) {
      of_all.push_back(std::move(gate));
    }
  }
  for (GateResult& gate : of_all) {
    if (!gate.pass && sampled) gate.detail = "sampled rows: " + gate.detail;
    keep_worst(std::move(gate), result.gates);
  }
  result.pass = std::all_of(result.gates.begin(), result.gates.end(),
                            [](const GateResult& gate) { return gate.pass; });
  return result;
}

Result<CaseResult> check_sampled(const Variant& variant, const CaseData& data, const Device& device,
                                 const Tolerances& tolerances, const CheckOptions& asked) {
  const CheckOptions options = what_it_gives(variant, data.shape, data.dtype, device, asked);
  auto harness = Harness::make(data, device, options);
  if (!harness.ok()) return harness.status();
  const Result<Plan> planned = plan((*harness)->problem(), device, &variant);
  if (!planned.ok()) return planned.status();
  const Result<RunOutput> output = (*harness)->run(*planned);
  if (!output.ok()) return output.status();

  const Sample sample = take_sample(data, sample_rows(data.shape.seq_q));
  std::vector<float> got;
  for (const std::uint16_t bits : rows_of(output->o, data.shape, sample.ranges)) {
    got.push_back(decode_16(bits, format_of_bits(options.output)));
  }
  const Formats formats{model_of(variant.weights, options.output).weights, options.output};
  CaseResult result = judge_sample(sample, got, formats, tolerances, options.budgets_only);
  result.variant = variant.name;
  result.gates.insert(result.gates.begin(),
                      judge_finite(output->o, format_of_bits(options.output)));
  if (options.rerun) {
    const Result<RunOutput> again = (*harness)->run(*planned);
    if (!again.ok()) return again.status();
    result.gates.push_back(judge_rerun(*output, *again));
  }
  (*harness)->judge_memory(result.gates);
  result.output = output->o;
  result.log_sum_exp = output->lse;
  result.pass = std::all_of(result.gates.begin(), result.gates.end(),
                            [](const GateResult& gate) { return gate.pass; });
  return result;
}

}  // namespace fp8_sdpa::reference
