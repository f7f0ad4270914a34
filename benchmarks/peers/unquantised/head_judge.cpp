#include "benchmarks/peers/unquantised/head_judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "reference/formats/quantise.hpp"
#include "reference/oracle/oracle.hpp"

namespace fp8_sdpa::bench {
namespace {

// The mean square of a row's error is mostly that of the few rows with an outlier: of 256 rows it
// is known to a quarter, of 2,048 to some percent.
constexpr std::int64_t kHeads = 16;
constexpr std::int64_t kRows = 128;

/// Up to `most` of `count`, from the first to the last.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most) {
  const std::int64_t chosen = std::min(count, most);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < chosen; ++i) {
    all.push_back(chosen == 1 ? 0 : (count - 1) * i / (chosen - 1));
  }
  return all;
}

/// Of differences.
struct Squares {
  double sum = 0.0;
  std::size_t count = 0;

  void add(const std::vector<float>& got, const std::vector<float>& want) {
    for (std::size_t i = 0; i < want.size(); ++i) sum += std::pow(double{got[i]} - want[i], 2);
    count += want.size();
  }
  double root_of_mean() const { return std::sqrt(sum / static_cast<double>(count)); }
};

}  // namespace

HeadJudge::HeadJudge(const reference::Shape& shape, const reference::Inputs& values,
                     std::uint64_t seed)
    : shape_(shape),
      values_(values),
      seed_(seed),
      heads_(spread(std::int64_t{shape.batch} * shape.heads_q, kHeads)),
      rows_(spread(shape.seq_q, kRows)) {
  for (const std::int64_t head : heads_) {
    want_.push_back(
        attend(head_of(values.q, head), head_of(values.k, head), head_of(values.v, head)));
  }
}

double HeadJudge::rmse(const Values& o) const {
  Squares squares;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    squares.add(rows_of(head_of(o, heads_[i])), want_[i]);
  }
  return squares.root_of_mean();
}

double HeadJudge::rmse_of_exact(bool rotate, bool smooth, Granularity granularity) const {
  Squares squares;
  const bool blocks = granularity == Granularity::kBlock;
  const int of_q = blocks ? kQueriesOfBlock : 0;
  const int of_kv = blocks ? kKeysOfBlock : 0;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    const auto quantised = [&](const Values& tensor, bool rotated, bool smoothed, int block_rows) {
      return reference::quantised(head_of(tensor, heads_[i]), 1, shape_.head_dim, rotated, smoothed,
                                  seed_, block_rows);
    };
    squares.add(attend(quantised(values_.q, rotate, false, of_q),
                       quantised(values_.k, rotate, smooth, of_kv),
                       quantised(values_.v, false, false, of_kv)),
                want_[i]);
  }
  return squares.root_of_mean();
}

HeadJudge::Values HeadJudge::head_of(const Values& tensor, std::int64_t head) const {
  const auto size = static_cast<std::ptrdiff_t>(shape_.seq_q * shape_.head_dim);
  return {tensor.begin() + head * size, tensor.begin() + (head + 1) * size};
}

HeadJudge::Values HeadJudge::rows_of(const Values& head) const {
  Values chosen;
  for (const std::int64_t row : rows_) {
    const auto* const first = head.data() + row * shape_.head_dim;
    chosen.insert(chosen.end(), first, first + shape_.head_dim);
  }
  return chosen;
}

HeadJudge::Values HeadJudge::attend(const Values& q, const Values& k, const Values& v) const {
  std::vector<std::int64_t> keys;
  for (const std::int64_t row : rows_) {
    keys.push_back(shape_.mask == Mask::kCausal ? row + 1 : shape_.seq_kv);
  }
  const reference::AttentionSizes sizes{
      1,          1, 1, static_cast<std::int64_t>(rows_.size()), shape_.seq_kv, shape_.head_dim,
      Mask::kNone};
  return reference::attention_fp64(rows_of(q), k, v, sizes, 1.0 / std::sqrt(shape_.head_dim), 0,
                                   keys)
      .o;
}

}  // namespace fp8_sdpa::bench
