#include "benchmarks/sweep/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace fp8_sdpa::bench {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

double steps_of(const reference::Shape& shape, const Resources& tile, int sm_count) {
  const std::int64_t blocks =
      std::int64_t{shape.batch} * shape.heads_q * ceil_div(shape.seq_q, tile.tile_m);
  return static_cast<double>(ceil_div(blocks, sm_count) * ceil_div(shape.seq_kv, tile.tile_n));
}

Result<CostModel> fit_cost_model(const std::vector<CostPoint>& points) {
  // Each point divided by its time: 1 = launch * u + per_step * v with u = 1 / t, v = steps / t.
  double uu = 0;
  double uv = 0;
  double vv = 0;
  double u_sum = 0;
  double v_sum = 0;
  for (const CostPoint& point : points) {
    if (!(point.us > 0) || !std::isfinite(point.us) || !(point.steps > 0)) {
      return invalid_argument("the cost model needs positive times and steps");
    }
    const double u = 1 / point.us;
    const double v = point.steps / point.us;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u_sum += u;
    v_sum += v;
  }
  const bool varied = std::any_of(points.begin(), points.end(), [&](const CostPoint& point) {
    return point.steps != points.front().steps;
  });
  const double determinant = uu * vv - uv * uv;
  if (!varied || !(determinant > 0)) {
    return invalid_argument("the cost model needs points of at least two different sizes");
  }
  return CostModel{(u_sum * vv - v_sum * uv) / determinant,
                   (v_sum * uu - u_sum * uv) / determinant};
}

double departure(const CostModel& model, const CostPoint& point) {
  return point.us / model.predict_us(point.steps) - 1;
}

double rms_departure(const CostModel& model, const std::vector<CostPoint>& points) {
  double sum = 0;
  for (const CostPoint& point : points) {
    const double d = departure(model, point);
    sum += d * d;
  }
  return std::sqrt(sum / static_cast<double>(points.size()));
}

}  // namespace fp8_sdpa::bench
