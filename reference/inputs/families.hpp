// Input families that ask something of a kernel: each makes one kind of mistake visible that
// uniform inputs hide. No libm function but fma and sqrt: the same bits on every platform.
#pragma once

#include <cstdint>
#include <span>

#include "reference/inputs/inputs.hpp"
#include "reference/inputs/shape.hpp"

namespace fp8_sdpa::reference {

/// One tensor to fill.
struct Drawing {
  const Shape& shape;  ///< with its InputSpec
  std::uint64_t seed;
  Operand operand;
  std::span<float> out;  ///< (batch, heads, seq, head_dim) of the operand

  int heads() const { return operand == Operand::kQ ? shape.heads_q : shape.heads_kv; }
  std::int64_t seq() const { return operand == Operand::kQ ? shape.seq_q : shape.seq_kv; }
};

void draw_uniform(const Drawing& drawing);
void draw_normal(const Drawing& drawing);
void draw_outliers(const Drawing& drawing);
void draw_peaked(const Drawing& drawing);
void draw_needle(const Drawing& drawing);
void draw_sink(const Drawing& drawing);
void draw_k_bias(const Drawing& drawing);
void draw_v_bias(const Drawing& drawing);
void draw_edges(const Drawing& drawing);
void draw_constant_v(const Drawing& drawing);
void draw_one_hot(const Drawing& drawing);
void draw_zero_k(const Drawing& drawing);
void draw_long_tail(const Drawing& drawing);

/// Which key the "needle" family hides in a head of `seq_kv` keys; `head` counts over (batch,
/// heads_kv).
std::int64_t needle_of(std::uint64_t seed, std::int64_t head, std::int64_t seq_kv);

}  // namespace fp8_sdpa::reference
