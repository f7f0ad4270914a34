// One problem as configuration files and tests give it: its sizes, and how its inputs are drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"

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

/// The sizes of one attention problem.
struct AttentionSizes {
  int batch = 0;
  int heads_q = 0;
  int heads_kv = 0;  ///< divides heads_q
  std::int64_t seq_q = 0;
  std::int64_t seq_kv = 0;
  int head_dim = 0;
  Mask mask = Mask::kNone;
};

inline AttentionSizes sizes_of(const Shape& shape) {
  return {shape.batch,  shape.heads_q,  shape.heads_kv, shape.seq_q,
          shape.seq_kv, shape.head_dim, shape.mask};
}

/// A shape of those sizes, in no suite.
inline Shape shape_of(const std::string& name, const AttentionSizes& sizes) {
  return {name,
          sizes.batch,
          sizes.heads_q,
          sizes.heads_kv,
          sizes.seq_q,
          sizes.seq_kv,
          sizes.head_dim,
          sizes.mask,
          {},
          {}};
}

/// How many keys query `row` sees: 0 to seq_kv, always the first ones.
constexpr std::int64_t visible_keys(const AttentionSizes& sizes, std::int64_t row) {
  if (sizes.mask == Mask::kNone) return sizes.seq_kv;
  const std::int64_t keys = row + sizes.seq_kv - sizes.seq_q + 1;
  return keys < 0 ? 0 : (keys > sizes.seq_kv ? sizes.seq_kv : keys);
}

}  // namespace fp8_sdpa::reference
