// What launches of the sm90 kernels take, fitted to a record of them: kernels/sm90/costs.def.
#pragma once

#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "sm90/costs.hpp"

namespace fp8_sdpa::bench {

/// One line of a record: the median time of a kernel (tile_shapes.def names it) on a shape.
struct TimedKernel {
  std::string shape;
  Problem problem;  ///< its sizes and mask
  const sm90::TileShape* kernel = nullptr;
  double us = 0;
};

/// Reads "shape,kernel,us" lines behind one of headings; shapes are named as `./sdpa peers --drawn`
/// names them. kInvalidArgument, with the line, where one is none.
Result<std::vector<TimedKernel>> read_record(const std::string& text);

/// The costs of kernel `index` of kTileShapes that predict its times best: relative errors, and
/// those of outliers less than squared. Where the record has fewer than three, a
/// kernel keeps its own.
sm90::Cost fit_cost(const std::vector<TimedKernel>& record, std::size_t index);

/// What choosing by fitted costs loses, over the shapes of a record that have several kernels.
struct ChoiceLoss {
  int shapes = 0;
  double mean = 0;  ///< geometric, of the chosen kernel's time over the fastest one's
  int above_3_percent = 0;
  double worst = 0;
  std::string worst_shape;
};
ChoiceLoss choice_loss(const std::vector<TimedKernel>& record,
                       const std::vector<sm90::Cost>& costs);

/// costs.def of these, in the order of kTileShapes.
std::string costs_text(const std::vector<sm90::Cost>& costs);

}  // namespace fp8_sdpa::bench
