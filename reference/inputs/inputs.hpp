// Unquantised Q, K and V: drawn from a seed, the same bits on every platform and backend.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8_sdpa/status.hpp"
#include "reference/inputs/shape.hpp"

namespace fp8_sdpa::reference {

/// Which tensor a stream of random words belongs to. Part of the stream's definition: never
/// renumber.
enum class Operand : std::uint32_t { kQ = 0, kK = 1, kV = 2 };

/// Unquantised tensors, (batch, heads, seq, head_dim) contiguous.
struct Inputs {
  std::vector<float> q;  ///< (batch, heads_q, seq_q, head_dim)
  std::vector<float> k;  ///< (batch, heads_kv, seq_kv, head_dim)
  std::vector<float> v;  ///< (batch, heads_kv, seq_kv, head_dim)
};

struct Drawing;

/// A way to draw inputs: one line of the table that input_families() returns.
struct InputFamily {
  std::string_view name;                 ///< as in the configuration file
  std::string_view summary;              ///< one line for people
  void (*draw)(const Drawing& drawing);  ///< fills one whole tensor
  /// The fixed tolerances are meant for it; others are judged by error budgets alone.
  bool fixed_tolerances = false;
};

/// Every family that draw_inputs() knows.
std::span<const InputFamily> input_families();

/// The family of that name, or nullptr.
const InputFamily* find_input_family(std::string_view name);

/// Whether draw_inputs() draws the same for both, by the same seed: they differ in name, mask and
/// suites at most.
bool same_inputs(const Shape& a, const Shape& b);

/// Draws the inputs of (shape, seed). kInvalidArgument for an unknown family, with the known ones.
Result<Inputs> draw_inputs(const Shape& shape, std::uint64_t seed);

}  // namespace fp8_sdpa::reference
