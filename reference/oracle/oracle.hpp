// The oracle: attention on the CPU in fp64, written for certainty. Every gate goes back to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/inputs/shape.hpp"
#include "reference/oracle/vectors.hpp"

namespace fp8_sdpa::reference {

/// An output, rounded to float once at the end.
struct Attention {
  std::vector<float> o;    ///< (batch, heads_q, seq_q, head_dim), contiguous
  std::vector<float> lse;  ///< (batch, heads_q, seq_q): log of the sum of exp(scaled scores)
};

/// O = softmax(scale * Q K^T + mask) V. q is (batch, heads_q, seq_q, head_dim), k and v are (batch,
/// heads_kv, seq_kv, head_dim), contiguous; query head h reads KV head h / (heads_q / heads_kv).
/// Scores, softmax and sums in fp64, two passes. A row without keys has O = 0 and LSE = -inf. NaN
/// in what a row attends to makes its O and LSE NaN; what a row does not attend to never reaches
/// it. Spread over `threads` OS threads (0: one per core); the result depends neither on them
/// nor on `vectors`.
/// `keys_of_row`, (seq_q), says how many keys each row sees where the rows of q are some of a
/// larger problem's; empty: as the mask says.
Attention attention_fp64(std::span<const float> q, std::span<const float> k,
                         std::span<const float> v, const AttentionSizes& sizes, double scale,
                         int threads = 0, std::span<const std::int64_t> keys_of_row = {},
                         Vectors vectors = widest_vectors());

}  // namespace fp8_sdpa::reference
