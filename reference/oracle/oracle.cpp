// Both products, Q K^T and P V, go through one 8 x 8 register tile: rows of A (contiguous along the
// depth) times a panel of B (8 columns wide, contiguous along the columns). K is packed transposed
// and V as it is, both as doubles, once per KV head. A task has several blocks of rows, which share
// what they read of K and V while a cache holds it.
#include "reference/oracle/oracle.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>

#include "reference/formats/parallel.hpp"
#include "reference/oracle/vectors.hpp"

namespace fp8_sdpa::reference {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 8;
constexpr std::int64_t kBlocksOfTask = 2;
constexpr std::int64_t kPanelsOfTask = 64;
constexpr std::int64_t kKeysAtOnce = 512;  ///< of P V, whose V and P then stay in a cache
constexpr std::int64_t kPackedBytes = std::int64_t{1} << 28;  ///< of heads that are held at a time

using Tile = std::array<std::array<double, kColumns>, kRows>;

/// For kPart rows: tile[r][c] += sum over k < depth of a[r * stride + k] * panel[k * kColumns + c],
/// in the order of k. However many lanes a vector has, each element is the same chain of additions.
template <int kLanes, int kPart>
__attribute__((always_inline)) inline void multiply_part(const double* a, std::int64_t stride,
                                                         const double* panel, std::int64_t depth,
                                                         double* tile) {
  using Vector = typename VectorOf<double, kLanes>::Type;
  constexpr int kVectors = kColumns / kLanes;
  Vector sum[kPart][kVectors];
  __builtin_memcpy(sum, tile, sizeof(sum));
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector b[kVectors];
    __builtin_memcpy(b, panel + k * kColumns, sizeof(b));
    for (int r = 0; r < kPart; ++r) {
      const double x = a[r * stride + k];
      for (int c = 0; c < kVectors; ++c) sum[r][c] += x * b[c];
    }
  }
  __builtin_memcpy(tile, sum, sizeof(sum));
}

/// The same for the first `rows` rows at least, as many at a time as registers hold.
template <int kLanes, int kPart>
__attribute__((always_inline)) inline void multiply(const double* a, std::int64_t stride,
                                                    const double* panel, std::int64_t depth,
                                                    int rows, Tile& tile) {
  for (int r = 0; r < rows; r += kPart) {
    multiply_part<kLanes, kPart>(a + r * stride, stride, panel, depth,
                                 tile[static_cast<std::size_t>(r)].data());
  }
}

void multiply_baseline(const double* a, std::int64_t stride, const double* panel,
                       std::int64_t depth, int rows, Tile& tile) {
  multiply<4, 4>(a, stride, panel, depth, rows, tile);
}

using Multiply = void (*)(const double*, std::int64_t, const double*, std::int64_t, int, Tile&);

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_avx2(const double* a, std::int64_t stride,
                                                   const double* panel, std::int64_t depth,
                                                   int rows, Tile& tile) {
  multiply<4, 4>(a, stride, panel, depth, rows, tile);
}
__attribute__((target("avx512f"))) void multiply_avx512(const double* a, std::int64_t stride,
                                                        const double* panel, std::int64_t depth,
                                                        int rows, Tile& tile) {
  if (rows <= kRows / 2) return multiply<8, 4>(a, stride, panel, depth, rows, tile);
  multiply<8, 8>(a, stride, panel, depth, rows, tile);
}
#endif

Multiply pick_multiply(Vectors vectors) {
#if defined(__x86_64__)
  if (vectors == Vectors::kAvx512) return multiply_avx512;
  if (vectors == Vectors::kAvx2) return multiply_avx2;
#endif
  static_cast<void>(vectors);
  return multiply_baseline;
}

constexpr std::int64_t panels(std::int64_t columns) { return (columns + kColumns - 1) / kColumns; }

/// One KV head in panels of kColumns columns, zero past the last one.
class PackedHead {
 public:
  PackedHead(std::int64_t seq_kv, std::int64_t head_dim)
      : seq_kv_(seq_kv),
        head_dim_(head_dim),
        k_(new double[static_cast<std::size_t>(panels(seq_kv) * head_dim * kColumns)]),
        v_(new double[static_cast<std::size_t>(panels(head_dim) * seq_kv * kColumns)]) {}

  /// Packs the keys of some panels, and their values; k and v are (seq_kv, head_dim).
  void pack(std::int64_t first_panel, std::int64_t last_panel, const float* k, const float* v) {
    for (std::int64_t p = first_panel; p < last_panel; ++p) pack_panel(p, k, v);
  }

  /// (head_dim, kColumns): the keys of a panel are columns.
  const double* k(std::int64_t panel) const { return k_.get() + panel * head_dim_ * kColumns; }
  /// (seq_kv, kColumns): dims are columns.
  const double* v(std::int64_t panel) const { return v_.get() + panel * seq_kv_ * kColumns; }

 private:
  void pack_panel(std::int64_t panel, const float* k, const float* v) {
    double* const keys = k_.get() + panel * head_dim_ * kColumns;
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t key = panel * kColumns + c;
      for (std::int64_t d = 0; d < head_dim_; ++d) {
        keys[d * kColumns + c] = key < seq_kv_ ? k[key * head_dim_ + d] : 0.0;
      }
      if (key >= seq_kv_) continue;
      for (std::int64_t d = 0; d < panels(head_dim_) * kColumns; ++d) {
        v_[static_cast<std::size_t>((d / kColumns * seq_kv_ + key) * kColumns + d % kColumns)] =
            d < head_dim_ ? v[key * head_dim_ + d] : 0.0;
      }
    }
  }

  std::int64_t seq_kv_;
  std::int64_t head_dim_;
  std::unique_ptr<double[]> k_;  // not filled with zeros: large, and packed at once
  std::unique_ptr<double[]> v_;
};

/// At most kRows query rows of one head.
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

/// Some blocks of query rows of one head.
class TaskOracle {
 public:
  TaskOracle(const PackedHead& head, std::span<const RowBlock> blocks, std::int64_t head_dim,
             double scale, Multiply multiply)
      : head_(head), blocks_(blocks), head_dim_(head_dim), scale_(scale), multiply_(multiply) {
    for (const RowBlock& block : blocks) {
      most_keys_ = std::max(most_keys_, *std::max_element(block.keys.begin(), block.keys.end()));
    }
    stride_ = panels(most_keys_) * kColumns;
    scores_.reset(new double[blocks.size() * static_cast<std::size_t>(kRows * stride_)]);
  }

  void run() {
    score();
    std::vector<std::array<double, kRows>> sums(blocks_.size());
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const RowBlock& block = blocks_[b];
      for (int r = 0; r < block.rows; ++r) {
        double max = 0.0;
        const auto keys = static_cast<std::size_t>(block.keys[static_cast<std::size_t>(r)]);
        const double sum = exponentiate(std::span(scores(b) + r * stride_, keys), max);
        block.lse[r] = static_cast<float>(max + std::log(sum));  // -inf + -inf without keys
        sums[b][static_cast<std::size_t>(r)] = sum;
      }
    }
    weigh(sums);
  }

 private:
  double* scores(std::size_t block) {
    return scores_.get() + static_cast<std::int64_t>(block) * kRows * stride_;
  }

  /// scores(b)[r * stride + j] = scale * (q_r . k_j), for the rows of block b.
  void score() {
    const std::int64_t of_block = kRows * head_dim_;
    std::vector<double> q(blocks_.size() * static_cast<std::size_t>(of_block));
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      std::copy_n(blocks_[b].q, blocks_[b].rows * head_dim_,
                  q.begin() + static_cast<std::int64_t>(b) * of_block);
    }
    for (std::int64_t panel = 0; panel < panels(most_keys_); ++panel) {
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        Tile tile{};
        multiply_(q.data() + static_cast<std::int64_t>(b) * of_block, head_dim_, head_.k(panel),
                  head_dim_, blocks_[b].rows, tile);
        double* const to = scores(b) + panel * kColumns;
        for (int r = 0; r < kRows; ++r) {
          for (int c = 0; c < kColumns; ++c) {
            to[r * stride_ + c] =
                scale_ * tile[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)];
          }
        }
      }
    }
  }

  /// o_r = sum over the keys of row r of p_rj * v_j / sum_r. The keys that all rows of a block see
  /// go through the tile; a row's further keys one by one, since 0 * NaN would let a masked NaN
  /// through.
  void weigh(const std::vector<std::array<double, kRows>>& sums) {
    const std::int64_t width = panels(head_dim_);
    std::vector<std::int64_t> shared;  // keys, of each block
    for (const RowBlock& block : blocks_) {
      shared.push_back(*std::min_element(block.keys.begin(), block.keys.begin() + block.rows));
    }
    std::vector<Tile> tiles(blocks_.size() * static_cast<std::size_t>(width));
    for (std::int64_t first = 0; first < most_keys_; first += kKeysAtOnce) {
      for (std::int64_t panel = 0; panel < width; ++panel) {
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
          const std::int64_t depth = std::min(kKeysAtOnce, shared[b] - first);
          if (depth <= 0) continue;
          multiply_(scores(b) + first, stride_, head_.v(panel) + first * kColumns, depth,
                    blocks_[b].rows,
                    tiles[b * static_cast<std::size_t>(width) + static_cast<std::size_t>(panel)]);
        }
      }
    }
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      for (std::int64_t d = 0; d < head_dim_; ++d) {
        finish(b, d,
               tiles[b * static_cast<std::size_t>(width) + static_cast<std::size_t>(d / kColumns)],
               shared[b], sums[b]);
      }
    }
  }

  /// Element d of each row of a block: the keys that not all see, and the quotient.
  void finish(std::size_t b, std::int64_t d, const Tile& tile, std::int64_t shared,
              const std::array<double, kRows>& sums) {
    const RowBlock& block = blocks_[b];
    const std::int64_t column = d % kColumns;
    const double* const v = head_.v(d / kColumns) + column;
    for (int r = 0; r < block.rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      double sum = tile[row][static_cast<std::size_t>(column)];
      for (std::int64_t j = shared; j < block.keys[row]; ++j) {
        sum += scores(b)[r * stride_ + j] * v[j * kColumns];
      }
      block.o[r * head_dim_ + d] =
          block.keys[row] == 0 ? 0.0F : static_cast<float>(sum / sums[row]);
    }
  }

  const PackedHead& head_;
  std::span<const RowBlock> blocks_;
  std::int64_t head_dim_;
  double scale_;
  std::int64_t most_keys_ = 0;
  std::int64_t stride_ = 0;
  std::unique_ptr<double[]> scores_;  ///< (blocks, kRows, stride)
  Multiply multiply_;
};

/// What attention_fp64() works on.
struct Tensors {
  std::span<const float> q, k, v;
  const AttentionSizes& sizes;
  double scale;
  std::span<const std::int64_t> keys_of_row;
  Multiply multiply;
};

/// The task's rows, of all tasks of one KV head: the query heads of one KV head follow each other
/// in (batch, heads_q).
void run_task(const Tensors& in, const PackedHead& head, std::int64_t kv, std::int64_t task,
              Attention& result) {
  const AttentionSizes& sizes = in.sizes;
  const std::int64_t group = sizes.heads_q / sizes.heads_kv;
  const std::int64_t tasks = (sizes.seq_q + kRows * kBlocksOfTask - 1) / (kRows * kBlocksOfTask);
  const std::int64_t first_row = task % tasks * kRows * kBlocksOfTask;
  const std::int64_t last_row = std::min(first_row + kRows * kBlocksOfTask, sizes.seq_q);
  std::vector<RowBlock> blocks;
  for (std::int64_t row = first_row; row < last_row; row += kRows) {
    const std::int64_t place = (kv * group + task / tasks) * sizes.seq_q + row;
    RowBlock& block = blocks.emplace_back();
    block = {in.q.data() + place * sizes.head_dim,
             result.o.data() + place * sizes.head_dim,
             result.lse.data() + place,
             static_cast<int>(std::min<std::int64_t>(kRows, last_row - row)),
             {}};
    for (int r = 0; r < block.rows; ++r) {
      block.keys[static_cast<std::size_t>(r)] =
          in.keys_of_row.empty() ? visible_keys(sizes, row + r)
                                 : in.keys_of_row[static_cast<std::size_t>(row + r)];
    }
  }
  TaskOracle(head, blocks, sizes.head_dim, in.scale, in.multiply).run();
}

}  // namespace

Attention attention_fp64(std::span<const float> q, std::span<const float> k,
                         std::span<const float> v, const AttentionSizes& sizes, double scale,
                         int threads, std::span<const std::int64_t> keys_of_row, Vectors vectors) {
  const std::int64_t rows_total = std::int64_t{sizes.batch} * sizes.heads_q * sizes.seq_q;
  const std::int64_t kv_elements = sizes.seq_kv * sizes.head_dim;
  const std::int64_t kv_heads = std::int64_t{sizes.batch} * sizes.heads_kv;
  assert(static_cast<std::int64_t>(q.size()) == rows_total * sizes.head_dim);
  assert(static_cast<std::int64_t>(k.size()) == kv_elements * kv_heads);
  assert(v.size() == k.size());
  assert(keys_of_row.empty() || std::ssize(keys_of_row) == sizes.seq_q);
  Attention result;
  result.o.resize(static_cast<std::size_t>(rows_total * sizes.head_dim));
  result.lse.resize(static_cast<std::size_t>(rows_total));
  const Tensors in{q, k, v, sizes, scale, keys_of_row, pick_multiply(vectors)};
  const std::int64_t tasks = sizes.heads_q / sizes.heads_kv *
                             ((sizes.seq_q + kRows * kBlocksOfTask - 1) / (kRows * kBlocksOfTask));
  const std::int64_t packs = (panels(sizes.seq_kv) + kPanelsOfTask - 1) / kPanelsOfTask;
  const auto bytes =
      static_cast<std::int64_t>(2 * sizeof(double)) * std::max(kv_elements, std::int64_t{1});
  const std::int64_t at_once = std::clamp<std::int64_t>(kPackedBytes / bytes, 1, kv_heads);
  std::vector<PackedHead> heads;
  for (std::int64_t i = 0; i < at_once; ++i) heads.emplace_back(sizes.seq_kv, sizes.head_dim);
  for (std::int64_t first = 0; first < kv_heads; first += at_once) {
    const std::int64_t count = std::min(at_once, kv_heads - first);
    parallel_for(
        count * packs,
        [&](std::int64_t i) {
          const auto place = (first + i / packs) * kv_elements;
          const std::int64_t panel = i % packs * kPanelsOfTask;
          heads[static_cast<std::size_t>(i / packs)].pack(
              panel, std::min(panel + kPanelsOfTask, panels(sizes.seq_kv)), k.data() + place,
              v.data() + place);
        },
        threads);
    parallel_for(
        count * tasks,
        [&](std::int64_t i) {
          run_task(in, heads[static_cast<std::size_t>(i / tasks)], first + i / tasks, i % tasks,
                   result);
        },
        threads);
  }
  return result;
}

}  // namespace fp8_sdpa::reference
