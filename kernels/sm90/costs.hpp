// costs.def as a table. Nothing that a kernel is compiled from reads it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "sm90/tile_shapes.hpp"

namespace fp8_sdpa::sm90 {

/// What a launch takes: predict.cpp has the model.
struct Cost {
  double launch_us;  ///< of a launch, whatever it has to do
  double tile_us;    ///< of a KV tile of the block that ends last
  double v_us;       ///< of 10^6 elements of V, where it is transposed before it is multiplied
};

/// Zeroes where costs.def has no such kernel.
constexpr Cost find_cost(std::string_view kernel) {
#define FP8_SDPA_SM90_COST(KERNEL, LAUNCH_US, TILE_US, V_US) \
  if (kernel == #KERNEL) return {LAUNCH_US, TILE_US, V_US};
#include "sm90/costs.def"
#undef FP8_SDPA_SM90_COST
  return {};
}

/// In the order of kTileShapes.
inline constexpr auto kCosts = [] {
  std::array<Cost, std::size(kTileShapes)> costs{};
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i] = find_cost(kTileShapes[i].kernel);
  return costs;
}();

// Of a kernel without costs, plan() would predict that it takes no time.
static_assert(std::ranges::all_of(kCosts, [](const Cost& cost) {
  return cost.launch_us > 0.0 && cost.tile_us > 0.0;
}));

/// Of one of kTileShapes.
constexpr const Cost& cost_of(const TileShape& shape) {
  return kCosts[static_cast<std::size_t>(&shape - kTileShapes)];
}

}  // namespace fp8_sdpa::sm90
