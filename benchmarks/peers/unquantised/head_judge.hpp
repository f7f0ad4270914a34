// Errors of attention on unquantised tensors: some rows of some heads against fp64.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/inputs/shape.hpp"

namespace fp8_sdpa::bench {

class HeadJudge {
 public:
  using Values = std::vector<float>;

  /// fp64 attention of up to 128 rows of up to 16 heads, evenly spread. @pre as many KV heads as
  /// heads, as many keys as rows; `values` outlive it.
  HeadJudge(const reference::Shape& shape, const reference::Inputs& values, std::uint64_t seed);

  /// sqrt(mean((got - want)^2)) of O, (batch, heads, seq, head_dim) contiguous.
  double rmse(const Values& o) const;
  /// The same of fp64 attention on what the tensors quantise to: no kernel can be better.
  double rmse_of_exact(bool rotate, bool smooth, Granularity granularity) const;

 private:
  Values head_of(const Values& tensor, std::int64_t head) const;
  Values rows_of(const Values& head) const;
  Values attend(const Values& q, const Values& k, const Values& v) const;

  const reference::Shape& shape_;
  const reference::Inputs& values_;
  std::uint64_t seed_;  ///< of the rotation
  std::vector<std::int64_t> heads_;
  std::vector<std::int64_t> rows_;
  std::vector<Values> want_;  ///< of each head
};

}  // namespace fp8_sdpa::bench
