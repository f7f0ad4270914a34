// config_forward.json: shapes, seeds, tolerances. One source of truth for tests, benchmarks and the
// runner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::reference {

/// How the unquantised inputs are drawn.
struct InputSpec {
  /// "uniform" (low, high), "normal" (mean, stddev) or another of input_families(), without
  /// parameters.
  std::string family = "uniform";
  double low = -1.0;
  double high = 1.0;
  double mean = 0.0;
  double stddev = 1.0;
  bool operator==(const InputSpec&) const = default;
};

/// One named problem size.
struct Shape {
  std::string name;
  int batch = 0;
  int heads_q = 0;
  int heads_kv = 0;  ///< defaults to heads_q
  std::int64_t seq_q = 0;
  std::int64_t seq_kv = 0;  ///< defaults to seq_q
  int head_dim = 0;
  Mask mask = Mask::kNone;
  InputSpec inputs;
  std::vector<std::string> suites;
  bool operator==(const Shape&) const = default;
};

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
