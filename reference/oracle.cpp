// Both products, Q K^T and P V, go through one 4 x 8 register tile: rows of A (contiguous along the
// depth) times a panel of B (8 columns wide, contiguous along the columns). K is packed transposed
// and V as it is, both as doubles, once per KV head.
#include "reference/oracle.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reference/parallel.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr int kRows = 4;
constexpr int kLanes = 4;  // doubles in a 256-bit register
constexpr int kVectors = 2;
constexpr int kColumns = kLanes * kVectors;

using Vector = double __attribute__((vector_size(kLanes * sizeof(double))));
using Tile = std::array<std::array<double, kColumns>, kRows>;

/// tile[r][c] = sum over k < depth of a[r * stride + k] * panel[k * kColumns + c], in the order of
/// k: however many lanes the machine has, each element is the same chain of additions.
__attribute__((always_inline)) inline void multiply(const double* a, std::int64_t stride,
                                                    const double* panel, std::int64_t depth,
                                                    Tile& tile) {
  Vector sum[kRows][kVectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector b[kVectors];
    __builtin_memcpy(b, panel + k * kColumns, sizeof(b));
    for (int r = 0; r < kRows; ++r) {
      const double x = a[r * stride + k];
      const Vector broadcast = {x, x, x, x};
      for (int c = 0; c < kVectors; ++c) sum[r][c] += broadcast * b[c];
    }
  }
  __builtin_memcpy(tile.data(), sum, sizeof(sum));
}

void multiply_baseline(const double* a, std::int64_t stride, const double* panel,
                       std::int64_t depth, Tile& tile) {
  multiply(a, stride, panel, depth, tile);
}

using Multiply = void (*)(const double*, std::int64_t, const double*, std::int64_t, Tile&);

#if defined(__x86_64__)
// Picked by hand: target_clones needs an ifunc, which runs before a sanitizer's runtime is up.
__attribute__((target("avx2"))) void multiply_avx2(const double* a, std::int64_t stride,
                                                   const double* panel, std::int64_t depth,
                                                   Tile& tile) {
  multiply(a, stride, panel, depth, tile);
}
Multiply pick_multiply() {
  return __builtin_cpu_supports("avx2") ? multiply_avx2 : multiply_baseline;
}
#else
Multiply pick_multiply() {
  return multiply_baseline;
}
#endif

constexpr std::int64_t panels(std::int64_t columns) {
  return (columns + kColumns - 1) / kColumns;
}

/// One KV head in panels of kColumns columns, zero past the last one.
struct PackedHead {
  std::vector<double> k;  ///< (panels(seq_kv), head_dim, kColumns): columns are keys
  std::vector<double> v;  ///< (panels(head_dim), seq_kv, kColumns): columns are dims
};

PackedHead pack(const float* k, const float* v, std::int64_t seq_kv, std::int64_t head_dim) {
  PackedHead packed;
  packed.k.resize(static_cast<std::size_t>(panels(seq_kv) * head_dim * kColumns));
  packed.v.resize(static_cast<std::size_t>(panels(head_dim) * seq_kv * kColumns));
  for (std::int64_t j = 0; j < seq_kv; ++j) {
    double* k_column = &packed.k[static_cast<std::size_t>(j / kColumns * head_dim * kColumns)];
    for (std::int64_t d = 0; d < head_dim; ++d) {
      k_column[d * kColumns + j % kColumns] = k[j * head_dim + d];
      packed.v[static_cast<std::size_t>((d / kColumns * seq_kv + j) * kColumns + d % kColumns)] =
          v[j * head_dim + d];
    }
  }
  return packed;
}

/// kRows query rows of one head.
struct RowBlock {
  const float* q;                        ///< (rows, head_dim)
  float* o;                              ///< (rows, head_dim)
  float* lse;                            ///< (rows)
  int rows;                              ///< 1 to kRows
  std::array<std::int64_t, kRows> keys;  ///< visible to each row; 0 past the last row
};

/// Turns a row of scaled scores into unnormalised probabilities and returns their sum; `max` gets
/// the largest score.
double exponentiate(std::span<double> scores, double& max) {
  max = -std::numeric_limits<double>::infinity();
  for (const double score : scores) max = std::max(max, score);  // a NaN shows in the sum
  double sum = 0.0;
  for (double& score : scores) {
    score = std::exp(score - max);
    sum += score;
  }
  return sum;
}

class HeadOracle {
 public:
  HeadOracle(PackedHead head, std::int64_t seq_kv, std::int64_t head_dim, double scale)
      : head_(std::move(head)), seq_kv_(seq_kv), head_dim_(head_dim), scale_(scale) {}

  void run(const RowBlock& block) const {
    const std::int64_t most_keys = *std::max_element(block.keys.begin(), block.keys.end());
    const std::int64_t stride = panels(seq_kv_) * kColumns;
    std::vector<double> scores(static_cast<std::size_t>(kRows * stride));
    score(block, most_keys, stride, scores);
    std::array<double, kRows> sums{};
    for (int r = 0; r < block.rows; ++r) {
      double max = 0.0;
      const auto row = std::span(scores).subspan(static_cast<std::size_t>(r * stride),
                                                 static_cast<std::size_t>(block.keys[r]));
      sums[r] = exponentiate(row, max);
      block.lse[r] = static_cast<float>(max + std::log(sums[r]));  // -inf + -inf without keys
    }
    weigh(block, stride, scores, sums);
  }

 private:
  /// scores[r * stride + j] = scale * (q_r . k_j)
  void score(const RowBlock& block, std::int64_t keys, std::int64_t stride,
             std::vector<double>& scores) const {
    std::vector<double> q(static_cast<std::size_t>(kRows * head_dim_));
    std::copy_n(block.q, block.rows * head_dim_, q.begin());
    Tile tile;
    for (std::int64_t panel = 0; panel < panels(keys); ++panel) {
      multiply_(q.data(), head_dim_, head_.k.data() + panel * head_dim_ * kColumns, head_dim_,
                tile);
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kColumns; ++c) {
          scores[static_cast<std::size_t>(r * stride + panel * kColumns + c)] = scale_ * tile[r][c];
        }
      }
    }
  }

  /// o_r = sum over the keys of row r of p_rj * v_j / sum_r. The keys that all rows see go through
  /// the tile; a row's further keys one by one, since 0 * NaN would let a masked NaN through.
  void weigh(const RowBlock& block, std::int64_t stride, const std::vector<double>& scores,
             const std::array<double, kRows>& sums) const {
    const auto last = block.keys.begin() + block.rows;
    const std::int64_t shared_keys = *std::min_element(block.keys.begin(), last);
    Tile tile;
    for (std::int64_t panel = 0; panel < panels(head_dim_); ++panel) {
      const double* v = head_.v.data() + panel * seq_kv_ * kColumns;
      multiply_(scores.data(), stride, v, shared_keys, tile);
      const std::int64_t first = panel * kColumns;
      const std::int64_t columns = std::min<std::int64_t>(kColumns, head_dim_ - first);
      for (int r = 0; r < block.rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          double sum = tile[r][c];
          for (std::int64_t j = shared_keys; j < block.keys[r]; ++j) {
            sum += scores[static_cast<std::size_t>(r * stride + j)] * v[j * kColumns + c];
          }
          block.o[r * head_dim_ + first + c] =
              block.keys[r] == 0 ? 0.0F : static_cast<float>(sum / sums[r]);
        }
      }
    }
  }

  PackedHead head_;
  std::int64_t seq_kv_;
  std::int64_t head_dim_;
  double scale_;
  Multiply multiply_ = pick_multiply();
};

}  // namespace

AttentionSizes sizes_of(const Shape& shape) {
  return {shape.batch,  shape.heads_q,  shape.heads_kv, shape.seq_q,
          shape.seq_kv, shape.head_dim, shape.mask};
}

Attention attention_fp64(std::span<const float> q, std::span<const float> k,
                         std::span<const float> v, const AttentionSizes& sizes, double scale,
                         int threads) {
  const std::int64_t rows_total = std::int64_t{sizes.batch} * sizes.heads_q * sizes.seq_q;
  const std::int64_t kv_elements = sizes.seq_kv * sizes.head_dim;
  assert(static_cast<std::int64_t>(q.size()) == rows_total * sizes.head_dim);
  assert(static_cast<std::int64_t>(k.size()) == kv_elements * sizes.batch * sizes.heads_kv);
  assert(v.size() == k.size());
  Attention result;
  result.o.resize(static_cast<std::size_t>(rows_total * sizes.head_dim));
  result.lse.resize(static_cast<std::size_t>(rows_total));
  const std::int64_t group = sizes.heads_q / sizes.heads_kv;
  const std::int64_t blocks = (sizes.seq_q + kRows - 1) / kRows;
  for (std::int64_t kv = 0; kv < std::int64_t{sizes.batch} * sizes.heads_kv; ++kv) {
    const HeadOracle head(
        pack(&k[static_cast<std::size_t>(kv * kv_elements)],
             &v[static_cast<std::size_t>(kv * kv_elements)], sizes.seq_kv, sizes.head_dim),
        sizes.seq_kv, sizes.head_dim, scale);
    // The query heads of one KV head follow each other in (batch, heads_q).
    parallel_for(
        group * blocks,
        [&](std::int64_t task) {
          const std::int64_t row = task % blocks * kRows;
          const std::int64_t place = (kv * group + task / blocks) * sizes.seq_q + row;
          RowBlock block{q.data() + place * sizes.head_dim,
                         result.o.data() + place * sizes.head_dim,
                         result.lse.data() + place,
                         static_cast<int>(std::min<std::int64_t>(kRows, sizes.seq_q - row)),
                         {}};
          for (int r = 0; r < block.rows; ++r) block.keys[r] = visible_keys(sizes, row + r);
          head.run(block);
        },
        threads);
  }
  return result;
}

}  // namespace fp8_sdpa::reference
