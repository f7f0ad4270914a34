// Making trials.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "reference/inputs/inputs.hpp"
#include "tests/wrong/trials.hpp"

namespace fp8_sdpa::wrong {

inline constexpr int kHeadDim = 64;
inline constexpr std::uint8_t kNanCode = 0x7F;

struct Sizes {
  int batch, heads_q, heads_kv;
  std::int64_t seq_q, seq_kv;
};

inline reference::Shape shape_of(const std::string& family, const Sizes& sizes,
                                 Mask mask = Mask::kNone) {
  reference::Shape shape;
  shape.name = family;
  shape.batch = sizes.batch;
  shape.heads_q = sizes.heads_q;
  shape.heads_kv = sizes.heads_kv;
  shape.seq_q = sizes.seq_q;
  shape.seq_kv = sizes.seq_kv;
  shape.head_dim = kHeadDim;
  shape.mask = mask;
  shape.inputs.family = family;
  return shape;
}

inline Trial trial_of(std::string name, const reference::Shape& shape,
                      reference::CheckOptions options = {}, Dtype dtype = Dtype::kE4M3) {
  options.rerun = false;
  constexpr std::uint64_t kSeed = 51;
  return {std::move(name), reference::make_case(shape, kSeed, dtype), options};
}

/// The same codes with other descales or codes.
template <class Edit>
Trial edited(std::string name, const Trial& from, const Edit& edit) {
  reference::CaseData data = *from.data;
  edit(data);
  Trial trial = from;
  trial.name = std::move(name);
  trial.data = reference::from_codes(std::move(data));
  return trial;
}

/// Every (batch, head) has scales of its own; one of Q's is negative.
inline void vary_descales(reference::CaseData& data) {
  int step = 0;
  for (auto* tensor : {&data.q, &data.k, &data.v}) {
    for (float& descale : tensor->descales) {
      descale *= 0.83F * std::ldexp(1.0F + 0.1F * static_cast<float>(step % 3), step % 4 - 1);
      ++step;
    }
  }
  data.q.descales.back() *= -1.0F;
}

/// The same of each block of rows, positive.
inline void vary_block_descales(reference::CaseData& data) {
  const std::int64_t dim = data.shape.head_dim;
  data.q = reference::in_blocks(std::move(data.q), kQueriesOfBlock * dim);
  data.k = reference::in_blocks(std::move(data.k), kKeysOfBlock * dim);
  data.v = reference::in_blocks(std::move(data.v), kKeysOfBlock * dim);
  vary_descales(data);
  data.q.descales.back() *= -1.0F;
}

/// Views that no contiguous tensor has, and values at the ends of what codes can hold; few rows on
/// many keys.
void add_edge_trials(std::vector<Trial>& trials);

}  // namespace fp8_sdpa::wrong
