// config_forward.json: shapes, seeds, tolerances. One source of truth for tests, benchmarks and the
// runner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"
#include "reference/inputs/shape.hpp"  // IWYU pragma: export

namespace fp8_sdpa::reference {

/// What gates.hpp judges by. Every field is required in the file.
struct Tolerances {
  double max_abs_err = 0;   ///< gate 1, against the reference on unquantised inputs
  double mean_abs_err = 0;  ///< gate 2
  double pct_bad = 0;       ///< gate 3: percent of elements with an error > bad_threshold
  double bad_threshold = 0;
  double rel_l2_quantised = 0;     ///< gate 4, every (batch, head)
  double abs_kernel = 0;           ///< against the reference on dequantised inputs
  double rel_l2_kernel = 0;        ///< the same, relative L2 of every (batch, head)
  double rel_l2_kernel_fp8_p = 0;  ///< rel_l2_kernel for kernels that round P to FP8
};

struct Timing {
  int warmup_iters = 100;
  int timed_iters = 500;
};

struct Config {
  std::string path;  ///< where it was read from, for messages
  std::vector<Shape> shapes;
  std::vector<std::uint64_t> seeds;
  Tolerances tolerances;
  Timing timing;

  /// The shape of that name, or nullptr.
  const Shape* find_shape(const std::string& name) const;
};

/// Reads and checks a configuration file. On failure the message names the file, the JSON pointer,
/// the value and what was expected.
Result<Config> load_config(const std::string& path);

/// The same, from text; `path` is only used in messages.
Result<Config> parse_config(const std::string& text, const std::string& path);

}  // namespace fp8_sdpa::reference
