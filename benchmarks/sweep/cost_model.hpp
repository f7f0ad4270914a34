// The cost model of a launch: t = launch + waves * tiles * per_tile.
#pragma once

#include <cstdint>
#include <vector>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// One measured launch: `steps` tiles are computed one after the other by the multiprocessor that
/// has most to do.
struct CostPoint {
  double steps = 0;
  double us = 0;
};

/// Waves times key tiles: ceil(blocks / multiprocessors) * ceil(S_kv / tile_n), where blocks =
/// B * H * ceil(S / tile_m). @pre positive sizes, no mask.
double steps_of(const reference::Shape& shape, const Resources& tile, int sm_count);

struct CostModel {
  double launch_us = 0;
  double per_step_us = 0;

  double predict_us(double steps) const { return launch_us + steps * per_step_us; }
};

/// Least squares of the relative error: minimises sum((model / measured - 1)^2), because the times
/// span four orders of magnitude and absolute squares would see the longest alone.
/// kInvalidArgument for fewer than two different step counts, and for times that are no positive
/// numbers.
Result<CostModel> fit_cost_model(const std::vector<CostPoint>& points);

/// measured / model - 1: 0.1 is ten percent slower than the model says.
double departure(const CostModel& model, const CostPoint& point);

/// The root mean square of the departures.
double rms_departure(const CostModel& model, const std::vector<CostPoint>& points);

}  // namespace fp8_sdpa::bench
