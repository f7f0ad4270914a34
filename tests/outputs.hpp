// O of a problem in host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::tests {

/// The rows of O, one after the other.
template <class Visit>
void visit_output(const Problem& p, const Visit& visit) {
  auto* const o = static_cast<std::uint16_t*>(p.o.data);
  for (int batch = 0; batch < p.batch; ++batch) {
    for (int head = 0; head < p.heads_q; ++head) {
      for (std::int64_t row = 0; row < p.seq_q; ++row) {
        visit(o + batch * p.o.stride_batch + head * p.o.stride_head + row * p.o.stride_seq);
      }
    }
  }
}
/// NaN in all of O.
inline void forget_output(const Problem& p) {
  visit_output(p, [&](std::uint16_t* row) { std::fill_n(row, p.head_dim, std::uint16_t{0xFFFF}); });
}
inline std::vector<std::uint16_t> output_of(const Problem& p) {
  std::vector<std::uint16_t> o;
  visit_output(p, [&](const std::uint16_t* row) { o.insert(o.end(), row, row + p.head_dim); });
  return o;
}

}  // namespace fp8_sdpa::tests
