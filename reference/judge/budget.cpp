#include "reference/judge/budget.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>

#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {

class BudgetCache {
 public:
  using Key = std::tuple<Weights, Accumulator, Dtype>;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const ModelRun>> runs;
  std::map<std::tuple<Key, std::int64_t, std::int64_t>, std::shared_ptr<const Budget>> made;
};

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Squares over a set of rows.
struct Squares {
  double error = 0.0;
  double want = 0.0;
  std::int64_t elements = 0;

  void add(const Squares& other) {
    error += other.error;
    want += other.want;
    elements += other.elements;
  }
  double mean_error() const { return elements > 0 ? error / static_cast<double>(elements) : 0.0; }
  double mean_want() const { return elements > 0 ? want / static_cast<double>(elements) : 0.0; }
};

Squares squares_of(const float* got, const float* want, std::int64_t dims) {
  Squares squares;
  for (std::int64_t d = 0; d < dims; ++d) {
    const double g = got[d];
    const double w = want[d];
    if (!std::isfinite(w)) {
      const bool agree = std::isnan(w) ? std::isnan(g) : g == w;
      if (!agree) squares.error = kInfinity;
      squares.elements += agree ? 0 : 1;
      continue;
    }
    squares.error += std::isfinite(g) ? (g - w) * (g - w) : kInfinity;
    squares.want += w * w;
    ++squares.elements;
  }
  return squares;
}

/// The set of rows that is worst for its allowance.
struct Worst {
  double ratio = -1.0;
  double value = 0.0;
  double allowance = 0.0;
  double scale = 0.0;
  std::int64_t place = 0;

  void consider(double mean_square, double budget, double multiple, double want_square,
                std::int64_t where) {
    const double error = std::sqrt(mean_square);
    const double allowed = multiple * std::sqrt(budget);
    const double how_bad = error == 0.0 ? 0.0 : (allowed > 0.0 ? error / allowed : kInfinity);
    if (how_bad <= ratio) return;
    *this = {how_bad, error, allowed, std::sqrt(want_square), where};
  }

  GateResult gate(const std::string& name, const std::string& what) const {
    GateResult result;
    const double by = scale > 0.0 ? 1.0 / scale : 1.0;
    result.name = name;
    result.value = value * by;
    result.threshold = allowance * by;
    result.pass = ratio <= 1.0;
    if (!result.pass) {
      constexpr int kSize = 128;
      char text[kSize];
      std::snprintf(text, sizeof text,
                    "rms error %.6g is not <= %.6g of the reference's rms; worst ", result.value,
                    result.threshold);
      result.detail = text + what;
    }
    return result;
  }
};

/// Means over rows of what a model run leads to expect.
class Expectation {
 public:
  void add(double expected, const RoundingSquares& rounding) {
    // A row of NaN is judged by being NaN.
    expected_ += std::isfinite(expected) ? expected : 0.0;
    for (std::size_t i = 0; i < rounding.size(); ++i) {
      rounding_[i] += std::isfinite(rounding[i]) ? rounding[i] : 0.0;
    }
    ++rows_;
  }
  void add(const Expectation& other) {
    expected_ += other.expected_;
    for (std::size_t i = 0; i < rounding_.size(); ++i) rounding_[i] += other.rounding_[i];
    rows_ += other.rows_;
  }
  double of_row() const {
    return std::max(expected_, std::accumulate(rounding_.begin(), rounding_.end(), 0.0) /
                                   static_cast<double>(rounding_.size()));
  }
  double of_rows() const {
    const double worst = *std::max_element(rounding_.begin(), rounding_.end());
    return std::max(expected_, worst) / static_cast<double>(rows_);
  }

 private:
  double expected_ = 0.0;
  RoundingSquares rounding_{};
  std::int64_t rows_ = 0;
};

/// What a model computed of rows of `dims` elements, and expects to be off by.
struct Modelled {
  const std::vector<float>& got;
  const std::vector<float>& want;
  const std::vector<double>& expected_square;
  const std::vector<RoundingSquares>& rounding_squares;
  std::int64_t dims;
};

RowBudgets make_budgets(const AttentionSizes& sizes, const Modelled& run, const RowRange& range) {
  const std::int64_t dims = run.dims;
  const std::int64_t heads = std::int64_t{sizes.batch} * sizes.heads_q;
  RowBudgets budget;
  Squares tensor;
  Expectation tensor_expected;
  for (std::int64_t head = 0; head < heads; ++head) {
    Squares in_head;
    Expectation head_expected;
    const std::int64_t first = head * sizes.seq_q + range.first;
    for (std::int64_t row = first; row < first + range.rows; ++row) {
      const auto place = static_cast<std::size_t>(row);
      const Squares squares = squares_of(&run.got[static_cast<std::size_t>(row * dims)],
                                         &run.want[static_cast<std::size_t>(row * dims)], dims);
      Expectation expected;
      expected.add(run.expected_square[place],
                   run.rounding_squares.empty() ? RoundingSquares{} : run.rounding_squares[place]);
      budget.row.push_back(std::max(squares.mean_error(), expected.of_row()));
      in_head.add(squares);
      head_expected.add(expected);
    }
    budget.head.push_back(std::max(in_head.mean_error(), head_expected.of_rows()));
    tensor.add(in_head);
    tensor_expected.add(head_expected);
  }
  budget.tensor = std::max(tensor.mean_error(), tensor_expected.of_rows());
  return budget;
}

/// exp(got - want), for sums: 1 also where both are no number, or both minus infinity.
std::vector<float> sums_over(const std::vector<float>& got, const std::vector<float>& want) {
  std::vector<float> sums;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    sums.push_back(same ? 1.0F : std::exp(got[i] - want[i]));
  }
  return sums;
}

Budget make_budget(const CaseData& data, const ModelRun& run, const RowRange& range) {
  const AttentionSizes sizes = sizes_of(data.shape);
  Budget budget{make_budgets(sizes,
                             {run.attention.o, data.reference_kernel.o, run.expected_square,
                              run.rounding_squares, sizes.head_dim},
                             range),
                {}};
  // Rows without keys have no sum, and those of NaN none to compare.
  std::vector<float> sums = run.sums;
  for (std::size_t row = 0; row < sums.size(); ++row) {
    if (!std::isfinite(data.reference_kernel.lse[row])) sums[row] = 1.0F;
  }
  budget.lse = make_budgets(sizes,
                            {sums, std::vector<float>(sums.size(), 1.0F), run.expected_sum_square,
                             run.sum_rounding_squares, 1},
                            range);
  return budget;
}

}  // namespace

std::shared_ptr<BudgetCache> make_budget_cache() { return std::make_shared<BudgetCache>(); }

double budget_multiple(std::int64_t rows) {
  constexpr double kSystematic = 1.5;
  constexpr double kChance = 4.5;
  return kSystematic + kChance / std::sqrt(static_cast<double>(std::max<std::int64_t>(rows, 1)));
}

ModelOptions model_of(Dtype weights, Dtype output) {
  ModelOptions options;
  options.weights = is_fp8(weights)               ? Weights::kE4M3
                    : weights == Dtype::kBFloat16 ? Weights::kBFloat16
                                                  : Weights::kHalf;
  options.output = output;
  return options;
}

ModelOptions model_of(bool fp8_p, Dtype output) {
  return model_of(fp8_p ? Dtype::kE4M3 : Dtype::kHalf, output);
}

std::shared_ptr<const Budget> budget_of(const CaseData& data, const ModelOptions& options) {
  return budget_of(data, options, {0, data.shape.seq_q});
}

std::shared_ptr<const Budget> budget_of(const CaseData& data, const ModelOptions& options,
                                        const RowRange& range) {
  BudgetCache& cache = *data.budgets;
  const std::lock_guard lock(cache.mutex);
  const BudgetCache::Key key{options.weights, options.accumulator, options.output};
  auto& run = cache.runs[key];
  if (run == nullptr) {
    run =
        std::make_shared<const ModelRun>(run_model(data.q, data.k, data.v, sizes_of(data.shape),
                                                   data.softmax_scale, options, data.keys_of_row));
  }
  auto& entry = cache.made[{key, range.first, range.rows}];
  if (entry == nullptr) entry = std::make_shared<const Budget>(make_budget(data, *run, range));
  return entry;
}

namespace {

/// The gates "<stem>_row", "<stem>_head" and "<stem>_tensor".
std::vector<GateResult> judge_rows(const std::string& stem, const std::vector<float>& got,
                                   const std::vector<float>& want, const Shape& shape,
                                   const RowBudgets& budget) {
  const std::int64_t dims = shape.head_dim;
  const std::int64_t heads = std::int64_t{shape.batch} * shape.heads_q;
  const std::int64_t rows = heads * shape.seq_q;
  if (static_cast<std::int64_t>(got.size()) != rows * dims || got.size() != want.size() ||
      static_cast<std::int64_t>(budget.row.size()) != rows) {
    GateResult gate{stem + "_tensor", kInfinity, 0.0, false, "the output has another size"};
    return {gate};
  }
  Worst worst_row, worst_head, worst_tensor;
  Squares tensor;
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<Squares> of_rows;
    Squares in_head;
    for (std::int64_t row = head * shape.seq_q; row < (head + 1) * shape.seq_q; ++row) {
      const auto at = static_cast<std::size_t>(row * dims);
      of_rows.push_back(squares_of(&got[at], &want[at], dims));
      in_head.add(of_rows.back());
    }
    for (std::int64_t r = 0; r < shape.seq_q; ++r) {
      const std::int64_t row = head * shape.seq_q + r;
      worst_row.consider(of_rows[static_cast<std::size_t>(r)].mean_error(),
                         budget.row[static_cast<std::size_t>(row)], budget_multiple(1),
                         in_head.mean_want(), row);
    }
    worst_head.consider(in_head.mean_error(), budget.head[static_cast<std::size_t>(head)],
                        budget_multiple(shape.seq_q), in_head.mean_want(), head);
    tensor.add(in_head);
  }
  worst_tensor.consider(tensor.mean_error(), budget.tensor, budget_multiple(rows),
                        tensor.mean_want(), 0);
  const auto head_text = [&](std::int64_t head) {
    return "(batch " + std::to_string(head / shape.heads_q) + ", head " +
           std::to_string(head % shape.heads_q);
  };
  return {
      worst_row.gate(stem + "_row", "row " + head_text(worst_row.place / shape.seq_q) + ", row " +
                                        std::to_string(worst_row.place % shape.seq_q) + ")"),
      worst_head.gate(stem + "_head", head_text(worst_head.place) + ")"),
      worst_tensor.gate(stem + "_tensor", "the whole tensor")};
}

}  // namespace

std::vector<GateResult> judge_budget(const std::vector<float>& got, const std::vector<float>& want,
                                     const Shape& shape, const Budget& budget) {
  return judge_rows("budget", got, want, shape, budget);
}

std::vector<GateResult> judge_lse_budget(const std::vector<float>& got,
                                         const std::vector<float>& want, const Shape& shape,
                                         const Budget& budget) {
  Shape column = shape;
  column.head_dim = 1;
  const std::vector<float> ones(want.size(), 1.0F);
  return judge_rows("lse", sums_over(got, want), ones, column, budget.lse);
}

}  // namespace fp8_sdpa::reference
