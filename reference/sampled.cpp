#include "reference/sampled.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "fp8_sdpa/forward.hpp"
#include "reference/half.hpp"
#include "reference/harness.hpp"

namespace fp8_sdpa::reference {
namespace {

/// Rows of every head of a (heads, seq, dim) tensor.
template <class T>
std::vector<T> rows_of(const std::vector<T>& values, std::int64_t heads, std::int64_t seq,
                       std::int64_t dim, const RowRange& range) {
  std::vector<T> taken;
  taken.reserve(static_cast<std::size_t>(heads * range.rows * dim));
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto* first = values.data() + (head * seq + range.first) * dim;
    taken.insert(taken.end(), first, first + range.rows * dim);
  }
  return taken;
}

QuantisedTensor rows_of(const QuantisedTensor& tensor, std::int64_t heads, std::int64_t seq,
                        std::int64_t dim, const RowRange& range) {
  QuantisedTensor taken = tensor;
  taken.codes = rows_of(tensor.codes, heads, seq, dim, range);
  return taken;
}

GateResult judge_finite(const std::vector<std::uint16_t>& bits, Dtype output) {
  std::int64_t count = 0;
  for (const std::uint16_t x : bits) count += std::isfinite(decode_16(x, output)) ? 0 : 1;
  return count_gate("finite", count,
                    std::to_string(count) + " elements of O are NaN or infinite; no input is");
}

/// Ranges of rows, side by side again.
class Pool {
 public:
  Pool(const Shape& whole, std::int64_t rows) : shape_(whole) {
    shape_.seq_q = rows;
    const auto elements =
        static_cast<std::size_t>(shape_.batch * shape_.heads_q * rows * shape_.head_dim);
    for (auto* values : {&got_, &quantised_, &kernel_}) values->resize(elements);
  }

  void add(const CaseData& part, const std::vector<float>& o) {
    put(o, got_, part.shape.seq_q);
    put(part.reference_quantised.o, quantised_, part.shape.seq_q);
    put(part.reference_kernel.o, kernel_, part.shape.seq_q);
    filled_ += part.shape.seq_q;
    max_abs_v_ = std::max(max_abs_v_, part.max_abs_v);
  }

  /// The gates with fixed tolerances, which are stated for whole heads.
  std::vector<GateResult> judge_all(const Variant& variant, const CaseData& data,
                                    const Tolerances& tolerances, CaseResult& result) const {
    result.quantised = compare(got_, quantised_, shape_, tolerances.bad_threshold);
    result.kernel = compare(got_, kernel_, shape_, tolerances.bad_threshold);
    const JudgeContext context{data.dtype, variant.fp8_p, max_abs_v_, 0.0, data.drawn};
    return judge(result.quantised, result.kernel, shape_, tolerances, context);
  }

 private:
  void put(const std::vector<float>& from, std::vector<float>& to, std::int64_t rows) const {
    const std::int64_t dim = shape_.head_dim;
    for (std::int64_t head = 0; head < std::int64_t{shape_.batch} * shape_.heads_q; ++head) {
      std::copy_n(from.data() + head * rows * dim, rows * dim,
                  to.data() + (head * shape_.seq_q + filled_) * dim);
    }
  }

  Shape shape_;  ///< of the pooled rows
  std::int64_t filled_ = 0;
  std::vector<float> got_, quantised_, kernel_;
  double max_abs_v_ = 0.0;
};

}  // namespace

std::vector<RowRange> sample_rows(std::int64_t seq_q) {
  constexpr std::int64_t kRanges = 8;
  constexpr std::int64_t kRows = 32;
  if (seq_q <= 2 * kRanges * kRows) return {{0, seq_q}};
  std::vector<RowRange> ranges;
  for (std::int64_t i = 0; i < kRanges; ++i) {
    ranges.push_back({i * (seq_q - kRows) / (kRanges - 1), kRows});
  }
  return ranges;
}

std::shared_ptr<const CaseData> slice(const CaseData& data, const RowRange& range) {
  const Shape& whole = data.shape;
  const std::int64_t dim = whole.head_dim;
  const std::int64_t q_heads = std::int64_t{whole.batch} * whole.heads_q;
  const std::int64_t kv_heads = std::int64_t{whole.batch} * whole.heads_kv;
  const RowRange keys{0, visible_keys(sizes_of(whole), range.first + range.rows - 1)};
  CaseData part;
  part.shape = whole;
  part.shape.name +=
      " rows " + std::to_string(range.first) + " to " + std::to_string(range.first + range.rows);
  part.shape.seq_q = range.rows;
  part.shape.seq_kv = keys.rows;
  part.seed = data.seed;
  part.dtype = data.dtype;
  part.drawn = data.drawn;
  part.softmax_scale = data.softmax_scale;
  part.inputs = {rows_of(data.inputs.q, q_heads, whole.seq_q, dim, range),
                 rows_of(data.inputs.k, kv_heads, whole.seq_kv, dim, keys),
                 rows_of(data.inputs.v, kv_heads, whole.seq_kv, dim, keys)};
  part.q = rows_of(data.q, q_heads, whole.seq_q, dim, range);
  part.k = rows_of(data.k, kv_heads, whole.seq_kv, dim, keys);
  part.v = rows_of(data.v, kv_heads, whole.seq_kv, dim, keys);
  return with_references(std::move(part));
}

Result<CaseResult> check_sampled(const Variant& variant, const CaseData& data, const Device& device,
                                 const Tolerances& tolerances, const CheckOptions& asked) {
  CheckOptions options = what_it_gives(variant, data.shape, data.dtype, device, asked);
  auto harness = Harness::make(data, device, options);
  if (!harness.ok()) return harness.status();
  const Result<Plan> planned = plan((*harness)->problem(), device, &variant);
  if (!planned.ok()) return planned.status();
  const Result<RunOutput> output = (*harness)->run(*planned);
  if (!output.ok()) return output.status();

  CaseResult result;
  result.shape = data.shape.name;
  result.seed = data.seed;
  result.variant = variant.name;
  result.gates.push_back(judge_finite(output->o, options.output));
  const Shape& whole = data.shape;
  const std::int64_t q_heads = std::int64_t{whole.batch} * whole.heads_q;
  options.lse = false;
  options.budgets_only = true;
  const std::vector<RowRange> ranges = sample_rows(whole.seq_q);
  Pool pool(whole, std::accumulate(
                       ranges.begin(), ranges.end(), std::int64_t{0},
                       [](std::int64_t sum, const RowRange& range) { return sum + range.rows; }));
  for (const RowRange& range : ranges) {
    const auto part = slice(data, range);
    const RunOutput rows{rows_of(output->o, q_heads, whole.seq_q, whole.head_dim, range), {}};
    CaseResult judged = judge_run(variant, *part, rows, tolerances, options);
    for (GateResult& gate : judged.gates) {
      if (!gate.pass) gate.detail = part->shape.name + ": " + gate.detail;
      result.gates.push_back(std::move(gate));
    }
    std::vector<float> o;
    for (const std::uint16_t bits : rows.o) o.push_back(decode_16(bits, options.output));
    pool.add(*part, o);
  }
  if (!asked.budgets_only) {
    for (GateResult& gate : pool.judge_all(variant, data, tolerances, result)) {
      if (!gate.pass) gate.detail = "sampled rows: " + gate.detail;
      result.gates.push_back(std::move(gate));
    }
  }
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
