// The expected error of a row. With p_j = exp(s_j) / sum exp(s), O = sum p_j v_j, and rms over the
// head_dim elements of a row:
//   P    rounding p_j to a format of unit roundoff u moves it by at most u p_j, uniformly:
//        variance (u p_j)^2 / 3. E4M3's subnormals are 2^-9 apart: a weight of w / 2^8 is moved by
//        at most 2^-18, or vanishes. l is summed before P is rounded, or of the rounded P, which
//        cancels a part of the error: not more in either case.
//   S    an error d_j of score j moves O by p_j d_j (v_j - O): 2^-21 |q| |k_j| scale in fp32 sums
//        of D <= 256 products, 2^-12 of the same in sums cut to 13 fractional bits.
//   O    rounding to half or bf16: (u |O|)^2 / 3; half's subnormals are 2^-24 apart.
//   P V  fp32 sums lose nothing worth counting. Sums cut to 13 fractional bits lose half a step a
//        product: where all have one sign, and the sum is promoted to fp32 every 128 keys, about
//        2^-9 of it at most, 2^-10 on average: 2^-10 sum p_j rms(v_j), which is no variance but a
//        bias.
// The errors of different keys are independent, so their variances add: sum_j of the above times
// rms(v_j)^2. The sums over j run beside the online softmax, rescaled by its factor or its square.
// Errors of P that are not independent, as those of equal weights, are in weight_rounding.hpp.
//
// The expected error of a row's sum of rounded weights, l, relative to that of exact ones. l is a
// column of O whose values are 1, so P and P V are as above with rms(v_j) = 1. S differs: O forgets
// an error that all its scores or weights have in common, l does not.
//   S    independent errors of scores d_j: sum_j (p_j d_j)^2. Scores cut to 13 fractional bits are
//        cut toward zero: products of one sign lose half a step each, 33 * 2^-14 of the partial sum
//        a multiply, and there are D / 32 multiplies, whose partial sums are half the score on
//        average: sum_j p_j c |s_j| in all, c = 33 * 2^-14 (D / 32 + 1) / 2; less for mixed signs.
//   exp2 a piecewise-linear one (sm90/compute/softmax.cuh) is off by 0.55 % rms over where a score
//        lies in its octave; scores that lie together are off alike, in all rows of a head.
// What E4M3 weights are multiplied by is taken for FP8 tensor cores, whatever the rounding model's
// own accumulator: a right kernel may use them.
#include "reference/oracle/model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/parallel.hpp"
#include "reference/oracle/products.hpp"

namespace fp8_sdpa::reference {
namespace {
constexpr int kTile = 64;  ///< keys of one step
constexpr std::int64_t kKeysOfTask = 512;
constexpr std::int64_t kDecodedElements = std::int64_t{1} << 25;  ///< of K that are held at a time
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kExp2Error = 0.0055;  ///< of the weights of a row, in common

/// Half a step of a format, relative to the smallest number of a binade.
double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::kE4M3: return 0x1p-4;
    case Dtype::kE5M2: return 0x1p-3;
    case Dtype::kHalf: return 0x1p-11;
    case Dtype::kBFloat16: return 0x1p-8;
    case Dtype::kFloat: return 0x1p-24;
    case Dtype::kInt8: return 0.0;  // whole numbers
  }
  return 0.0;
}

/// What the options mean in numbers.
struct Rounding {
  double weight_u;      ///< unit roundoff of P's format
  double weight_floor;  ///< half a step of its subnormals, as an unscaled weight
  double score_u;       ///< error of a score, of |q| |k| scale
  double sum_u;         ///< error of P V's sum, of sum p_j rms(v_j)
  bool fp8;             ///< products of FP8 tensor cores
  double output_u;
  double output_floor;
  float weight_factor;

  /// What cutting costs a score whose products have one sign, of that score.
  double score_cut(int head_dim) const {
    return fp8 ? (kFp8Depth + 1) * 0x1p-14 * (static_cast<double>(head_dim) / kFp8Depth + 1.0) / 2.0
               : 0.0;
  }

  explicit Rounding(const ModelOptions& options)
      : weight_u(options.weights == Weights::kHalf ? 0x1p-11 : 0x1p-4),
        weight_floor(options.weights == Weights::kHalf ? 0x1p-25 : 0x1p-18),
        score_u(options.weights == Weights::kE4M3 ? 0x1p-12 : 0x1p-21),
        sum_u(options.weights == Weights::kE4M3 ? 0x1p-10 : 0x1p-22),
        fp8(options.weights == Weights::kE4M3),
        output_u(unit_roundoff(options.output)),
        output_floor(options.output == Dtype::kHalf ? 0x1p-25 : 0.0),
        weight_factor(options.weights == Weights::kE4M3 ? 0x1p8F : 1.0F) {
    if (options.weights == Weights::kBFloat16) {
      weight_u = unit_roundoff(Dtype::kBFloat16);
      weight_floor = 0.0;
    }
  }
};

float round_weight(float weight, Weights format) {
  if (format == Weights::kE4M3) return round_to_e4m3(weight);
  const Dtype dtype = format == Weights::kHalf ? Dtype::kHalf : Dtype::kBFloat16;
  return decode_16(encode_16(weight, dtype), dtype);
}

/// An element of O as its format holds it. An FP8 output's scale is not known here: it keeps the
/// format's mantissa alone.
float round_output(float value, Dtype format) {
  if (size_of(format) == 2) return decode_16(encode_16(value, format), format);
  if (value == 0.0F || !std::isfinite(value)) return value;
  const auto per_binade = static_cast<float>(1.0 / unit_roundoff(format));
  int exponent = 0;
  const float significand = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(significand * per_binade) / per_binade, exponent);
}

/// One KV head, decoded but not descaled. K lies as its sums want it: `k` for sums in fp32,
/// `k_rows` and `v_columns` for those that are cut.
struct Head {
  std::vector<float> k;          ///< (tiles, head_dim, kTile)
  std::vector<float> k_rows;     ///< (seq_kv, head_dim)
  std::vector<float> v;          ///< (seq_kv, head_dim)
  std::vector<float> v_columns;  ///< (tiles, head_dim, kTile)
  std::vector<double> k_square;  ///< |k_j|^2
  std::vector<double> v_square;  ///< rms(v_j)^2
  std::vector<double> v_rms;     ///< rms(v_j)
  float k_descale = 1.0F;
  float v_descale = 1.0F;
};

/// Room for a head, for sums of that kind.
Head empty_head(const AttentionSizes& sizes, Accumulator accumulator) {
  const auto dim = static_cast<std::size_t>(sizes.head_dim);
  const auto keys = static_cast<std::size_t>(sizes.seq_kv);
  const std::size_t tiles = (keys + kTile - 1) / kTile;
  Head out;
  if (accumulator == Accumulator::kFp32) {
    out.k.resize(tiles * dim * kTile);
  } else {
    out.k_rows.resize(keys * dim);
    out.v_columns.resize(tiles * dim * kTile);
  }
  out.v.resize(keys * dim);
  out.k_square.resize(keys);
  out.v_square.resize(keys);
  out.v_rms.resize(keys);
  return out;
}

/// Fills in the keys [first, last) of a head.
void decode_keys(const QuantisedTensor& k, const QuantisedTensor& v, std::int64_t head,
                 std::size_t first, std::size_t last, Head& out) {
  const auto& k_table = decode_table(k.dtype);
  const auto& v_table = decode_table(v.dtype);
  const std::size_t keys = out.k_square.size();
  const std::size_t dim = out.v.size() / keys;
  const std::size_t base = static_cast<std::size_t>(head) * keys * dim;
  for (std::size_t j = first; j < last; ++j) {
    double k_square = 0.0;
    double v_square = 0.0;
    const float k_unit = k.in_units_of_first(base + j * dim);
    const float v_unit = v.in_units_of_first(base + j * dim);
    for (std::size_t d = 0; d < dim; ++d) {
      const float key = k_table[k.codes[base + j * dim + d]] * k_unit;
      const float value = v_table[v.codes[base + j * dim + d]] * v_unit;
      const std::size_t column = (j / kTile * dim + d) * kTile + j % kTile;
      if (!out.k.empty()) out.k[column] = key;
      if (!out.k_rows.empty()) out.k_rows[j * dim + d] = key;
      if (!out.v_columns.empty()) out.v_columns[column] = value;
      out.v[j * dim + d] = value;
      k_square += static_cast<double>(key) * key;
      v_square += static_cast<double>(value) * value / static_cast<double>(dim);
    }
    out.k_square[j] = k_square;
    out.v_square[j] = v_square;
    out.v_rms[j] = std::sqrt(v_square);
  }
}

/// The running state of one query row.
struct Row {
  float max = -kInfinity;  ///< of scaled scores
  double sum = 0.0;        ///< of weights before rounding
  std::vector<float> o;
  double weight_variance = 0.0;  ///< sum of (error of p_j)^2 rms(v_j)^2, unnormalised
  double score_variance = 0.0;
  double magnitude = 0.0;        ///< sum of p_j rms(v_j), unnormalised
  float rounded_sum = 0.0F;      ///< of weights after rounding, times the weight factor
  double sum_variance = 0.0;     ///< as those of O, for V = 1
  double score_magnitude = 0.0;  ///< sum of p_j |s_j|, unnormalised
  std::vector<float> scores;
};

class RowModel {
 public:
  RowModel(const Head& head, const AttentionSizes& sizes, const ModelOptions& options, float factor)
      : head_(head), sizes_(sizes), options_(options), rounding_(options), factor_(factor) {}

  /// Runs over the keys [0, keys) and writes the row's results to `place` of the run.
  void run(const float* q, std::int64_t keys, ModelRun& run, std::size_t place) const {
    const auto dim = static_cast<std::size_t>(sizes_.head_dim);
    Row row;
    row.o.assign(dim, 0.0F);
    double q_square = 0.0;
    for (std::size_t d = 0; d < dim; ++d) q_square += static_cast<double>(q[d]) * q[d];
    for (std::int64_t first = 0; first < keys; first += kTile) {
      const int count = static_cast<int>(std::min<std::int64_t>(kTile, keys - first));
      std::array<float, kTile> x{};
      score(q, first, count, x);
      weigh(first, count, q_square, x, row);
      row.scores.insert(row.scores.end(), x.begin(), x.begin() + count);
    }
    finish(row, keys, run, place);
  }

 private:
  void score(const float* q, std::int64_t first, int count, std::array<float, kTile>& x) const {
    const auto dim = static_cast<std::size_t>(sizes_.head_dim);
    if (options_.accumulator != Accumulator::kFp32) {
      for (int n = 0; n < count; ++n) {
        const float* key = &head_.k_rows[static_cast<std::size_t>(first + n) * dim];
        for (std::size_t d = 0; d < dim; d += kFp8Depth) {
          const int depth = static_cast<int>(std::min<std::size_t>(kFp8Depth, dim - d));
          x[static_cast<std::size_t>(n)] =
              add_truncated(x[static_cast<std::size_t>(n)], q + d, key + d, depth);
        }
      }
    } else {
      const float* tile = &head_.k[static_cast<std::size_t>(first / kTile) * dim * kTile];
      add_products(q, tile, kTile, dim, kTile, x.data());
    }
    for (int n = 0; n < count; ++n) x[static_cast<std::size_t>(n)] *= factor_;
  }

  /// One step of the online softmax, and P V.
  void weigh(std::int64_t first, int count, double q_square, std::array<float, kTile>& x,
             Row& row) const {
    const auto dim = static_cast<std::size_t>(sizes_.head_dim);
    float max = row.max;
    for (int n = 0; n < count; ++n) {
      const float value = x[static_cast<std::size_t>(n)];
      if (!(value <= max)) max = value;  // a NaN stays
      if (std::isnan(max)) break;
    }
    const float base = max == -kInfinity ? 0.0F : max;
    const float rescale = std::exp(row.max - base);
    const double square_rescale = static_cast<double>(rescale) * rescale;
    row.max = max;
    row.sum *= rescale;
    row.magnitude *= rescale;
    row.weight_variance *= square_rescale;
    row.score_variance *= square_rescale;
    row.sum_variance *= square_rescale;
    row.score_magnitude *= rescale;
    std::array<float, kTile> p{};
    for (int n = 0; n < count; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const auto key = static_cast<std::size_t>(first + n);
      const float weight = std::exp(x[at] - base);
      row.sum += weight;
      row.magnitude += weight * head_.v_rms[key];
      p[at] = round_weight(weight * rounding_.weight_factor, options_.weights);
      const double moved =
          std::max(rounding_.weight_u * weight, std::min(rounding_.weight_floor, double{weight}));
      const double weight_variance = moved * moved / 3.0;
      row.weight_variance += weight_variance * head_.v_square[key];
      const double score = rounding_.score_u * weight * factor_;
      const double score_variance = score * score * q_square * head_.k_square[key];
      row.score_variance += score_variance * head_.v_square[key];
      row.sum_variance += weight_variance + score_variance;
      row.score_magnitude += weight * std::fabs(x[at]);
    }
    if (options_.accumulator != Accumulator::kFp32) {
      add_truncated_tile(first, count, p, rescale, row);
      return;
    }
    row.rounded_sum *= rescale;
    for (int n = 0; n < count; ++n) row.rounded_sum += p[static_cast<std::size_t>(n)];
    for (float& value : row.o) value *= rescale;
    add_products(p.data(), &head_.v[static_cast<std::size_t>(first) * dim], dim,
                 static_cast<std::size_t>(count), dim, row.o.data());
  }

  void add_truncated_tile(std::int64_t first, int count, const std::array<float, kTile>& p,
                          float rescale, Row& row) const {
    const auto dim = static_cast<std::size_t>(sizes_.head_dim);
    const float* tile = &head_.v_columns[static_cast<std::size_t>(first / kTile) * dim * kTile];
    const bool carried = options_.accumulator == Accumulator::kTruncated13Carried;
    const auto add = [&](float& to, const float* column) {
      float sum = carried ? to * rescale : 0.0F;
      for (int n = 0; n < count; n += kFp8Depth) {
        sum = add_truncated(sum, &p[static_cast<std::size_t>(n)], column + n,
                            std::min(kFp8Depth, count - n));
      }
      to = carried ? sum : to * rescale + sum;
    };
    for (std::size_t d = 0; d < dim; ++d) add(row.o[d], tile + d * kTile);
    std::array<float, kTile> ones{};
    ones.fill(1.0F);
    add(row.rounded_sum, ones.data());
  }

  void finish(const Row& row, std::int64_t keys, ModelRun& run, std::size_t place) const {
    const auto dim = static_cast<std::size_t>(sizes_.head_dim);
    if (keys == 0) {
      run.attention.lse[place] = -kInfinity;  // all else is 0
      return;
    }
    const auto sum = static_cast<float>(row.sum);
    const float scale = head_.v_descale / (sum * rounding_.weight_factor);
    double square = 0.0;
    for (std::size_t d = 0; d < dim; ++d) {
      const float value = round_output(row.o[d] * scale, options_.output);
      run.attention.o[place * dim + d] = value;
      square += static_cast<double>(value) * value / static_cast<double>(dim);
    }
    run.attention.lse[place] = row.max + std::log(sum);
    run.sums[place] = row.rounded_sum / (sum * rounding_.weight_factor);
    const double v_scale = static_cast<double>(head_.v_descale) / row.sum;
    const double output = rounding_.output_u * rounding_.output_u * square +
                          rounding_.output_floor * rounding_.output_floor;
    const double bias = rounding_.sum_u * row.magnitude;
    run.expected_square[place] =
        (row.weight_variance + row.score_variance + bias * bias) * v_scale * v_scale + output / 3.0;
    const double sum_bias =
        rounding_.sum_u + rounding_.score_cut(sizes_.head_dim) * row.score_magnitude / row.sum;
    run.expected_sum_square[place] = row.sum_variance / (row.sum * row.sum) + sum_bias * sum_bias +
                                     (rounding_.fp8 ? kExp2Error * kExp2Error : 0.0);
    if (run.rounding_squares.empty()) return;
    WeightRounding squares = weight_rounding(row.scores, row.max, head_.v, sizes_.head_dim);
    for (double& value : squares.output) value *= v_scale * v_scale;
    for (double& value : squares.sum) value /= row.sum * row.sum;
    run.rounding_squares[place] = squares.output;
    run.sum_rounding_squares[place] = squares.sum;
  }

  const Head& head_;
  const AttentionSizes& sizes_;
  ModelOptions options_;
  Rounding rounding_;
  float factor_;  ///< raw score -> exponent of e
};

}  // namespace

ModelRun run_model(const QuantisedTensor& q, const QuantisedTensor& k, const QuantisedTensor& v,
                   const AttentionSizes& sizes, float softmax_scale, const ModelOptions& options,
                   std::span<const std::int64_t> keys_of_row) {
  const auto dim = static_cast<std::size_t>(sizes.head_dim);
  const std::int64_t heads = std::int64_t{sizes.batch} * sizes.heads_q;
  const std::int64_t group = sizes.heads_q / sizes.heads_kv;
  const auto rows = static_cast<std::size_t>(heads * sizes.seq_q);
  const auto& table = decode_table(q.dtype);
  ModelRun run;
  run.attention.o.resize(rows * dim);
  run.attention.lse.resize(rows);
  run.expected_square.resize(rows);
  run.sums.resize(rows);
  run.expected_sum_square.resize(rows);
  const bool fp8_p = options.weights == Weights::kE4M3;
  run.rounding_squares.resize(fp8_p ? rows : 0);
  run.sum_rounding_squares.resize(fp8_p ? rows : 0);
  const auto run_row = [&](const Head& head, std::int64_t q_head, std::int64_t row) {
    const auto place = static_cast<std::size_t>(q_head * sizes.seq_q + row);
    std::vector<float> query(dim);
    for (std::size_t d = 0; d < dim; ++d) query[d] = table[q.codes[place * dim + d]];
    const float factor = q.descales[q.descale_of(place * dim)] * head.k_descale * softmax_scale;
    const std::int64_t keys =
        keys_of_row.empty() ? visible_keys(sizes, row) : keys_of_row[static_cast<std::size_t>(row)];
    RowModel(head, sizes, options, factor).run(query.data(), keys, run, place);
  };
  // As many heads at a time as keep all cores busy, and as little memory as that takes.
  const std::int64_t kv_heads = std::int64_t{sizes.batch} * sizes.heads_kv;
  const std::int64_t decodes = (sizes.seq_kv + kKeysOfTask - 1) / kKeysOfTask;
  const std::int64_t rows_of_head = group * sizes.seq_q;
  std::vector<Head> kept;
  const std::int64_t at_once =
      std::clamp<std::int64_t>(kDecodedElements / (sizes.seq_kv * sizes.head_dim), 1, kv_heads);
  for (std::int64_t i = 0; i < at_once; ++i) kept.push_back(empty_head(sizes, options.accumulator));
  for (std::int64_t first = 0; first < kv_heads; first += at_once) {
    const std::int64_t count = std::min(at_once, kv_heads - first);
    for (std::int64_t i = 0; i < count; ++i) {
      Head& head = kept[static_cast<std::size_t>(i)];
      head.k_descale = k.descales[static_cast<std::size_t>((first + i) * k.blocks())];
      head.v_descale = v.descales[static_cast<std::size_t>((first + i) * v.blocks())];
    }
    parallel_for(count * decodes, [&](std::int64_t i) {
      const std::int64_t key = i % decodes * kKeysOfTask;
      decode_keys(k, v, first + i / decodes, static_cast<std::size_t>(key),
                  static_cast<std::size_t>(std::min(key + kKeysOfTask, sizes.seq_kv)),
                  kept[static_cast<std::size_t>(i / decodes)]);
    });
    parallel_for(count * rows_of_head, [&](std::int64_t i) {
      const std::int64_t row = i % rows_of_head;
      run_row(kept[static_cast<std::size_t>(i / rows_of_head)],
              (first + i / rows_of_head) * group + row / sizes.seq_q, row % sizes.seq_q);
    });
  }
  return run;
}

}  // namespace fp8_sdpa::reference
