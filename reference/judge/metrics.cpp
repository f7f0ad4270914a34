#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reference/judge/gates.hpp"

namespace fp8_sdpa::reference {
namespace {

/// |got - want|; infinite where one is not finite and the other is not the same.
double error_of(double got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0.0 : HUGE_VAL;
  if (std::isinf(want)) return got == want ? 0.0 : HUGE_VAL;
  return std::isfinite(got) ? std::fabs(got - want) : HUGE_VAL;
}

/// a / b for errors and norms: 0 / 0 is no error, x / 0 an infinite one.
double ratio(double a, double b) {
  if (a == 0.0) return 0.0;
  return b > 0.0 ? a / b : HUGE_VAL;
}

/// Sums over a range of elements. Elements that agree on being non-finite are left out.
struct Sums {
  double abs_error = 0, squared_error = 0;
  double abs_want = 0, squared_want = 0, squared_got = 0, product = 0;

  void add(double got, double want, double error) {
    abs_error += error;
    squared_error += error * error;
    if (!std::isfinite(want) || !std::isfinite(got)) return;
    abs_want += std::fabs(want);
    squared_want += want * want;
    squared_got += got * got;
    product += got * want;
  }
  void add(const Sums& other) {
    abs_error += other.abs_error;
    squared_error += other.squared_error;
    abs_want += other.abs_want;
    squared_want += other.squared_want;
    squared_got += other.squared_got;
    product += other.product;
  }
};

/// The sizes that elements are counted by.
struct Sizes {
  std::int64_t batch, heads, rows, dims;
};

Metrics worst_of_all() {
  Metrics metrics;
  metrics.max_abs_err = metrics.mean_abs_err = metrics.max_rel_err = metrics.rel_l2 = HUGE_VAL;
  metrics.rmse = metrics.rel_rmse = metrics.rel_l1 = HUGE_VAL;
  metrics.pct_bad = 100.0;
  metrics.cosine = 0.0;
  return metrics;
}

/// Errors of one (batch, head), added to `metrics`; `worst` gets its worst element.
Sums compare_head(const float* got, const float* want, const Sizes& extent, std::int64_t place,
                  double bad_threshold, Metrics& metrics, std::int64_t& bad, Element& worst) {
  constexpr double kRelativeFloor = 1e-3;
  Sums sums;
  double worst_error = -1.0;
  for (std::int64_t i = 0; i < extent.rows * extent.dims; ++i) {
    const double g = got[i];
    const double w = want[i];
    const double error = error_of(g, w);
    sums.add(g, w, error);
    if (std::isinf(error)) ++metrics.non_finite;
    if (!(error <= bad_threshold)) ++bad;
    if (std::isfinite(w)) {
      metrics.max_rel_err =
          std::max(metrics.max_rel_err, error / std::max(std::fabs(w), kRelativeFloor));
    }
    if (error > worst_error) {
      worst_error = error;
      worst = {place / extent.heads, place % extent.heads, i / extent.dims, i % extent.dims, g, w};
    }
  }
  if (worst_error > metrics.max_abs_err || place == 0) {
    metrics.max_abs_err = worst_error;
    metrics.worst = worst;
  }
  return sums;
}

Metrics compare_extent(const std::vector<float>& got, const std::vector<float>& want,
                       const Sizes& extent, double bad_threshold) {
  const std::int64_t per_head = extent.rows * extent.dims;
  const std::int64_t count = extent.batch * extent.heads * per_head;
  if (count < 1 || static_cast<std::int64_t>(got.size()) != count ||
      static_cast<std::int64_t>(want.size()) != count) {
    Metrics wrong_size = worst_of_all();
    wrong_size.non_finite = std::max<std::int64_t>(count, 1);
    return wrong_size;
  }
  Metrics metrics;
  Sums total;
  std::int64_t bad = 0;
  for (std::int64_t place = 0; place < extent.batch * extent.heads; ++place) {
    Element worst;
    const Sums sums = compare_head(got.data() + place * per_head, want.data() + place * per_head,
                                   extent, place, bad_threshold, metrics, bad, worst);
    const double rel_l2 = ratio(std::sqrt(sums.squared_error), std::sqrt(sums.squared_want));
    if (place == 0 || rel_l2 > metrics.rel_l2) {
      metrics.rel_l2 = rel_l2;
      metrics.worst_head = worst;
    }
    total.add(sums);
  }
  if (metrics.non_finite > 0) {
    Metrics infinite = worst_of_all();
    infinite.non_finite = metrics.non_finite;
    infinite.worst = metrics.worst;
    infinite.worst_head = metrics.worst_head;
    return infinite;
  }
  const auto elements = static_cast<double>(count);
  metrics.mean_abs_err = total.abs_error / elements;
  metrics.pct_bad = 100.0 * static_cast<double>(bad) / elements;
  metrics.rmse = std::sqrt(total.squared_error / elements);
  metrics.rel_rmse = ratio(std::sqrt(total.squared_error), std::sqrt(total.squared_want));
  metrics.rel_l1 = ratio(total.abs_error, total.abs_want);
  const double norms = std::sqrt(total.squared_got) * std::sqrt(total.squared_want);
  metrics.cosine = norms > 0.0 ? total.product / norms : (total.squared_error == 0.0 ? 1.0 : 0.0);
  return metrics;
}

}  // namespace

Metrics compare(const std::vector<float>& got, const std::vector<float>& want, const Shape& shape,
                double bad_threshold) {
  return compare_extent(got, want, {shape.batch, shape.heads_q, shape.seq_q, shape.head_dim},
                        bad_threshold);
}

Metrics compare_lse(const std::vector<float>& got, const std::vector<float>& want,
                    const Shape& shape) {
  return compare_extent(got, want, {shape.batch, shape.heads_q, shape.seq_q, 1}, HUGE_VAL);
}

}  // namespace fp8_sdpa::reference
