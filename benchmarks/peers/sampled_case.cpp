#include "benchmarks/peers/sampled_case.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/budget.hpp"
#include "reference/quantise.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::CaseData;
using reference::GateResult;
using reference::Metrics;
using reference::QuantisedTensor;
using reference::Shape;

/// Rows of one length that are taken out of a tensor, or put into one.
struct Rows {
  std::int64_t first;
  std::int64_t count;
};

template <class T>
void append_rows(const std::vector<T>& from, const Rows& rows, std::int64_t dim,
                 std::vector<T>& to) {
  const auto begin = from.begin() + rows.first * dim;
  to.insert(to.end(), begin, begin + rows.count * dim);
}

void append_rows(const QuantisedTensor& from, const Rows& rows, std::int64_t dim,
                 QuantisedTensor& to) {
  append_rows(from.codes, rows, dim, to.codes);
  to.descales.push_back(from.descales.front());
}

/// The sizes of what a slice takes.
struct SliceRows {
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t keys;
  std::int64_t pairs;  ///< (batch, KV head)
};

Slice take_slice(const CaseData& whole, const SliceRows& rows) {
  const Shape& shape = whole.shape;
  const std::int64_t group = shape.heads_q / shape.heads_kv;
  const std::int64_t all_pairs = std::int64_t{shape.batch} * shape.heads_kv;
  CaseData data;
  data.shape = shape;
  data.shape.batch = static_cast<int>(rows.pairs);
  data.shape.heads_q = static_cast<int>(group);
  data.shape.heads_kv = 1;
  data.shape.seq_q = rows.queries;
  data.shape.seq_kv = rows.keys;
  data.seed = whole.seed;
  data.dtype = whole.dtype;
  data.softmax_scale = whole.softmax_scale;
  data.q.dtype = data.k.dtype = data.v.dtype = whole.dtype;
  Slice slice;
  for (std::int64_t i = 0; i < rows.pairs; ++i) {
    // From the first to the last.
    const std::int64_t pair =
        rows.pairs == 1 ? all_pairs - 1 : i * (all_pairs - 1) / (rows.pairs - 1);
    const Rows keys{pair * shape.seq_kv, rows.keys};
    append_rows(whole.k, keys, shape.head_dim, data.k);
    append_rows(whole.v, keys, shape.head_dim, data.v);
    append_rows(whole.inputs.k, keys, shape.head_dim, data.inputs.k);
    append_rows(whole.inputs.v, keys, shape.head_dim, data.inputs.v);
    for (std::int64_t head = pair * group; head < (pair + 1) * group; ++head) {
      const Rows queries{head * shape.seq_q + rows.first_query, rows.queries};
      append_rows(whole.q, queries, shape.head_dim, data.q);
      append_rows(whole.inputs.q, queries, shape.head_dim, data.inputs.q);
      slice.first_row.push_back(queries.first);
    }
  }
  slice.data = reference::with_references(std::move(data));
  return slice;
}

/// The blocks of rows that are judged, each with the keys that its last row sees.
std::vector<SliceRows> blocks_of(const Shape& shape, std::int64_t max_scores) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t all_pairs = std::int64_t{shape.batch} * shape.heads_kv;
  const std::int64_t group = shape.heads_q / shape.heads_kv;
  if (all_pairs * group * shape.seq_q * shape.seq_kv <= max_scores) {
    return {{0, shape.seq_q, shape.seq_kv, all_pairs}};
  }
  const std::int64_t queries = std::min(kBlock, shape.seq_q);
  std::vector<std::int64_t> starts = {0, (shape.seq_q - queries) / 2, shape.seq_q - queries};
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  const std::int64_t scores_of_pair =
      static_cast<std::int64_t>(starts.size()) * group * queries * shape.seq_kv;
  const std::int64_t pairs = std::clamp<std::int64_t>(max_scores / scores_of_pair, 1, all_pairs);
  std::vector<SliceRows> blocks;
  for (const std::int64_t start : starts) {
    // A causal slice is aligned bottom-right again: it ends with the last key of its last row.
    const std::int64_t visible = start + queries + shape.seq_kv - shape.seq_q;
    const std::int64_t keys = shape.mask == Mask::kCausal ? visible : shape.seq_kv;
    if (keys > 0) blocks.push_back({start, queries, keys, pairs});
  }
  return blocks;
}

void keep_worst(const Metrics& other, Metrics& worst) {
  if (other.max_abs_err > worst.max_abs_err) worst.worst = other.worst;
  if (other.rel_l2 > worst.rel_l2) worst.worst_head = other.worst_head;
  for (double Metrics::*field :
       {&Metrics::max_abs_err, &Metrics::mean_abs_err, &Metrics::max_rel_err, &Metrics::pct_bad,
        &Metrics::rel_l2, &Metrics::rmse, &Metrics::rel_rmse, &Metrics::rel_l1}) {
    worst.*field = std::max(worst.*field, other.*field);
  }
  worst.cosine = std::min(worst.cosine, other.cosine);
  worst.non_finite += other.non_finite;
}

void keep_worst(const GateResult& other, std::vector<GateResult>& gates) {
  const auto same = std::find_if(gates.begin(), gates.end(),
                                 [&](const GateResult& gate) { return gate.name == other.name; });
  if (same == gates.end()) {
    gates.push_back(other);
    return;
  }
  const bool worse = other.value * same->threshold > same->value * other.threshold;
  if (same->pass && (!other.pass || worse)) *same = other;
}

std::vector<float> slice_of(const std::vector<float>& o, const Slice& slice) {
  const Shape& shape = slice.data->shape;
  std::vector<float> rows;
  rows.reserve(slice.first_row.size() * static_cast<std::size_t>(shape.seq_q * shape.head_dim));
  for (const std::int64_t first : slice.first_row) {
    append_rows(o, {first, shape.seq_q}, shape.head_dim, rows);
  }
  return rows;
}

void judge_slice(const Slice& slice, const std::vector<float>& o, const Formats& formats,
                 const reference::Tolerances& tolerances, reference::CaseResult& result) {
  const CaseData& data = *slice.data;
  const bool fp8_p = formats.weights == reference::Weights::kE4M3;
  const Metrics quantised =
      compare(o, data.reference_quantised.o, data.shape, tolerances.bad_threshold);
  const Metrics kernel = compare(o, data.reference_kernel.o, data.shape, tolerances.bad_threshold);
  const reference::JudgeContext context{data.dtype, fp8_p, data.max_abs_v, data.score_bound,
                                        data.drawn};
  for (const GateResult& gate : judge(quantised, kernel, data.shape, tolerances, context)) {
    const bool own_error = gate.name == "kernel_abs" || gate.name == "kernel_rel_l2";
    if (!own_error || size_of(formats.output) == 2) keep_worst(gate, result.gates);
  }
  reference::ModelOptions model;
  model.weights = formats.weights;
  model.output = formats.output;
  const auto budget = budget_of(data, model);
  for (const GateResult& gate : judge_budget(o, data.reference_kernel.o, data.shape, *budget)) {
    keep_worst(gate, result.gates);
  }
  keep_worst(quantised, result.quantised);
  keep_worst(kernel, result.kernel);
}

}  // namespace

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
  for (const SliceRows& rows : blocks_of(shape, max_scores)) {
    sampled.slices.push_back(take_slice(whole, rows));
  }
  whole.inputs = {};
  sampled.whole = std::make_shared<const CaseData>(std::move(whole));
  return sampled;
}

reference::CaseResult judge_output(const SampledCase& sampled, const std::vector<float>& o,
                                   const Formats& formats,
                                   const reference::Tolerances& tolerances) {
  const Shape& shape = sampled.whole->shape;
  reference::CaseResult result;
  result.shape = shape.name;
  result.seed = sampled.whole->seed;
  const std::int64_t elements =
      std::int64_t{shape.batch} * shape.heads_q * shape.seq_q * shape.head_dim;
  if (static_cast<std::int64_t>(o.size()) != elements) {
    GateResult gate{
        "output_size", static_cast<double>(o.size()), static_cast<double>(elements), false,
        "O has " + std::to_string(o.size()) + " elements, expected " + std::to_string(elements)};
    result.gates = {gate};
    return result;
  }
  for (const Slice& slice : sampled.slices) {
    judge_slice(slice, slice_of(o, slice), formats, tolerances, result);
  }
  result.pass =
      !result.gates.empty() && std::all_of(result.gates.begin(), result.gates.end(),
                                           [](const GateResult& gate) { return gate.pass; });
  return result;
}

}  // namespace fp8_sdpa::bench
