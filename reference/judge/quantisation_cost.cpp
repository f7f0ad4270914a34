#include "reference/judge/quantisation_cost.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

#include "reference/formats/quantise.hpp"
#include "reference/oracle/oracle.hpp"

namespace fp8_sdpa::reference {
namespace {

struct Options {
  double QuantisationCost::*cost;
  bool rotate, smooth;
};
constexpr Options kOptions[] = {{&QuantisationCost::rotate, true, false},
                                {&QuantisationCost::smooth, false, true},
                                {&QuantisationCost::both, true, true}};

/// Relative L2 of each query head; NaN where one side has a NaN that the other has not.
std::vector<double> errors_of(const std::vector<float>& got, const std::vector<float>& want,
                              std::size_t heads) {
  std::vector<double> errors;
  const std::size_t per_head = want.size() / heads;
  for (std::size_t head = 0; head < heads; ++head) {
    double error = 0.0;
    double norm = 0.0;
    for (std::size_t i = head * per_head; i < (head + 1) * per_head; ++i) {
      if (std::isnan(got[i]) && std::isnan(want[i])) continue;
      error += std::pow(double{got[i]} - want[i], 2);
      norm += std::pow(double{want[i]}, 2);
    }
    errors.push_back(error == 0.0 ? 0.0 : std::sqrt(error / norm));
  }
  return errors;
}

}  // namespace

std::vector<QuantisationCost> quantisation_costs(const CaseData& data) {
  const Shape& shape = data.shape;
  const auto heads =
      static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.heads_q);
  std::vector<QuantisationCost> costs(heads);
  const std::vector<float>& want = data.reference_quantised.o;
  const auto put = [&](double QuantisationCost::*cost, const std::vector<float>& got) {
    const std::vector<double> errors = errors_of(got, want, heads);
    for (std::size_t head = 0; head < heads; ++head) costs[head].*cost = errors[head];
  };
  for (std::size_t head = 0; head < heads; ++head) {
    costs[head].batch = static_cast<std::int64_t>(head) / shape.heads_q;
    costs[head].head = static_cast<std::int64_t>(head) % shape.heads_q;
  }
  put(&QuantisationCost::plain, data.reference_kernel.o);
  const std::vector<float> v = dequantise(data.v);
  for (const Options& options : kOptions) {
    const std::int64_t kv_heads = std::int64_t{shape.batch} * shape.heads_kv;
    const std::vector<float> q =
        quantised(data.inputs.q, static_cast<std::int64_t>(heads), shape.head_dim, options.rotate,
                  /*smooth=*/false);
    const std::vector<float> k =
        quantised(data.inputs.k, kv_heads, shape.head_dim, options.rotate, options.smooth);
    put(options.cost,
        attention_fp64(q, k, v, sizes_of(shape), data.softmax_scale, 0, data.keys_of_row).o);
  }
  // NaN first: what cannot be told is worst.
  const auto worth = [](const QuantisationCost& cost) {
    return std::isnan(cost.plain) ? std::numeric_limits<double>::infinity() : cost.plain;
  };
  std::stable_sort(costs.begin(), costs.end(),
                   [&](const auto& a, const auto& b) { return worth(a) > worth(b); });
  return costs;
}

std::string cost_table(const std::vector<QuantisationCost>& costs, std::size_t most) {
  std::string text =
      "| batch | head | as it is | rotated | smoothed | both |\n|---|---|---|---|---|---|\n";
  const auto add = [&](const std::string& who, const QuantisationCost& cost) {
    char line[128];
    std::snprintf(line, sizeof line, " %.4f | %.4f | %.4f | %.4f |\n", cost.plain, cost.rotate,
                  cost.smooth, cost.both);
    text += who + line;
  };
  QuantisationCost mean;
  for (const QuantisationCost& cost : costs) {
    for (const auto part : {&QuantisationCost::plain, &QuantisationCost::rotate,
                            &QuantisationCost::smooth, &QuantisationCost::both}) {
      mean.*part += cost.*part / static_cast<double>(costs.size());
    }
  }
  for (std::size_t i = 0; i < std::min(most, costs.size()); ++i) {
    add("| " + std::to_string(costs[i].batch) + " | " + std::to_string(costs[i].head) + " |",
        costs[i]);
  }
  add("| mean of | all " + std::to_string(costs.size()) + " |", mean);
  return text;
}

}  // namespace fp8_sdpa::reference
