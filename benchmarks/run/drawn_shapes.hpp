// Shapes drawn at random, where a choice that was tuned on named ones has to hold too.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// `count` shapes with unit-normal inputs, the same for the same seed: head_dim 64, 128 or 256; 64
/// to 32768 keys, log-uniform; as many rows, or, of every other one, 1/2 to 1/64 of them; 1 to 256
/// (batch, query head) pairs, log-uniform; 1 to 8 query heads to a KV head; no mask or causal. At
/// most 4e12 FLOP, and no more of K than a host draws in seconds (2^28 elements): what is larger is
/// drawn anew. Names say the sizes: "d128_b2_h8_kv4_q300_k600_causal".
///
/// With `few_rows`, as in decode steps on whole tensors: 1 to 64 rows, log-uniform; to 65536 keys;
/// 1 to 512 (batch, KV head) pairs, 1 to 16 query heads each.
std::vector<reference::Shape> drawn_shapes(int count, std::uint64_t seed, bool few_rows = false);

}  // namespace fp8_sdpa::bench
