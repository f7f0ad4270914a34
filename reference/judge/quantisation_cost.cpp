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
  for (std::size_t head = 0; head < heads; ++head) {
    costs[head].batch = static_cast<std::int64_t>(head) / shape.heads_q;
    costs[head].head = static_cast<std::int64_t>(head) % shape.heads_q;
  }
  const auto made = [&](const std::vector<float>& values, std::int64_t of, bool rotate, bool smooth,
                        int block_rows) {
    return quantised(values, of, shape.head_dim, rotate, smooth, /*seed=*/0, block_rows);
  };
  const std::int64_t kv_heads = std::int64_t{shape.batch} * shape.heads_kv;
  for (std::size_t nth = 0; nth < kQuantisingWays.size(); ++nth) {
    const QuantisingWay& way = kQuantisingWays[nth].way;
    std::vector<float> got = data.reference_kernel.o;
    if (nth > 0) {
      const int of_q = way.blocks ? kQueriesOfBlock : 0;
      const int of_kv = way.blocks ? kKeysOfBlock : 0;
      got = attention_fp64(
                made(data.inputs.q, static_cast<std::int64_t>(heads), way.rotate, false, of_q),
                made(data.inputs.k, kv_heads, way.rotate, way.smooth, of_kv),
                made(data.inputs.v, kv_heads, false, false, of_kv), sizes_of(shape),
                data.softmax_scale, 0, data.keys_of_row)
                .o;
    }
    const std::vector<double> errors = errors_of(got, want, heads);
    for (std::size_t head = 0; head < heads; ++head) costs[head].of[nth] = errors[head];
  }
  // NaN first: what cannot be told is worst.
  const auto worth = [](const QuantisationCost& cost) {
    const double plain = cost.of.front();
    return std::isnan(plain) ? std::numeric_limits<double>::infinity() : plain;
  };
  std::stable_sort(costs.begin(), costs.end(),
                   [&](const auto& a, const auto& b) { return worth(a) > worth(b); });
  return costs;
}

std::string cost_table(const std::vector<QuantisationCost>& costs, std::size_t most) {
  std::string text = "| batch | head |";
  std::string rule = "\n|---|---|";
  for (const NamedWay& way : kQuantisingWays) {
    text += std::string(" ") + way.name + " |";
    rule += "---|";
  }
  text += rule + "\n";
  const auto add = [&](const std::string& who, const QuantisationCost& cost) {
    text += who;
    for (const double error : cost.of) {
      char cell[32];
      std::snprintf(cell, sizeof cell, " %.4f |", error);
      text += cell;
    }
    text += "\n";
  };
  QuantisationCost mean;
  for (const QuantisationCost& cost : costs) {
    for (std::size_t nth = 0; nth < mean.of.size(); ++nth) {
      mean.of[nth] += cost.of[nth] / static_cast<double>(costs.size());
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
