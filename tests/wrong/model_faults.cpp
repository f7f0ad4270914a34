#include "tests/wrong/model_faults.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/oracle/model.hpp"

namespace fp8_sdpa::wrong {
namespace {

using reference::CaseData;
using reference::Shape;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The steps of attention, each of which a fault may replace.
struct Recipe {
  std::function<bool(const Shape&, std::int64_t row, std::int64_t key)> sees =
      [](const Shape& shape, std::int64_t row, std::int64_t key) {
        return key < visible_keys(reference::sizes_of(shape), row);
      };
  std::function<std::int64_t(const Shape&, std::int64_t head)> kv_head =
      [](const Shape& shape, std::int64_t head) { return head * shape.heads_kv / shape.heads_q; };
  /// What a raw score is multiplied with; q_head and kv_head count over (batch, heads).
  std::function<double(const CaseData&, std::size_t q_head, std::size_t kv_head)> score_scale =
      [](const CaseData& data, std::size_t q_head, std::size_t kv_head) {
        return static_cast<double>(data.q.descales[q_head]) * data.k.descales[kv_head] *
               data.softmax_scale;
      };
  std::function<double(const CaseData&, std::size_t kv_head)> value_scale =
      [](const CaseData& data, std::size_t kv_head) {
        return static_cast<double>(data.v.descales[kv_head]);
      };
  std::function<double(double difference)> exponential = [](double x) { return std::exp(x); };
  /// The weight that meets V, from the one that is summed.
  std::function<double(double weight)> rounded = [](double weight) { return weight; };
  std::function<double(double sum, double term)> add = [](double sum, double term) {
    return sum + term;
  };
  std::function<std::size_t(std::size_t dim)> dim_of_v = [](std::size_t dim) { return dim; };
  std::function<void(const CaseData&, Attended&)> after = [](const CaseData&, Attended&) {};
};

void attend_row(const CaseData& data, const Recipe& recipe, std::size_t q_head, std::size_t kv_head,
                std::int64_t row, float* o, float* lse) {
  const auto& q_table = reference::decode_table(data.q.dtype);
  const auto dim = static_cast<std::size_t>(data.shape.head_dim);
  const auto keys = static_cast<std::size_t>(data.shape.seq_kv);
  const std::uint8_t* q = &data.q.codes[(q_head * static_cast<std::size_t>(data.shape.seq_q) +
                                         static_cast<std::size_t>(row)) *
                                        dim];
  const std::uint8_t* k = &data.k.codes[kv_head * keys * dim];
  const std::uint8_t* v = &data.v.codes[kv_head * keys * dim];
  const double scale = recipe.score_scale(data, q_head, kv_head);
  std::vector<std::pair<std::size_t, double>> scores;
  double max = -kInfinity;
  for (std::size_t j = 0; j < keys; ++j) {
    if (!recipe.sees(data.shape, row, static_cast<std::int64_t>(j))) continue;
    double score = 0.0;
    for (std::size_t d = 0; d < dim; ++d) {
      score += static_cast<double>(q_table[q[d]]) * q_table[k[j * dim + d]];
    }
    scores.emplace_back(j, score * scale);
    max = std::max(max, scores.back().second);
  }
  std::vector<double> sums(dim);
  double sum = 0.0;
  for (const auto& [j, score] : scores) {
    const double weight = recipe.exponential(score - max);
    sum = recipe.add(sum, weight);
    const double rounded = recipe.rounded(weight);
    for (std::size_t d = 0; d < dim; ++d) {
      sums[d] += rounded * q_table[v[j * dim + recipe.dim_of_v(d)]];
    }
  }
  const double value_scale = recipe.value_scale(data, kv_head);
  for (std::size_t d = 0; d < dim; ++d) {
    const auto value = static_cast<float>(scores.empty() ? 0.0 : sums[d] * value_scale / sum);
    o[d] = reference::decode_16(reference::encode_16(value, Dtype::kHalf), Dtype::kHalf);
  }
  *lse = static_cast<float>(max + std::log(sum));
}

Attended attend(const CaseData& data, const Recipe& recipe) {
  const Shape& shape = data.shape;
  const auto heads =
      static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.heads_q);
  const auto rows = static_cast<std::size_t>(shape.seq_q);
  Attended out;
  out.o.resize(data.q.codes.size());
  out.lse.resize(heads * rows);
  for (std::size_t head = 0; head < heads; ++head) {
    const std::int64_t batch = static_cast<std::int64_t>(head) / shape.heads_q;
    const std::int64_t kv_head =
        batch * shape.heads_kv +
        recipe.kv_head(shape, static_cast<std::int64_t>(head) % shape.heads_q);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t place = head * rows + row;
      attend_row(data, recipe, head, static_cast<std::size_t>(kv_head),
                 static_cast<std::int64_t>(row),
                 &out.o[place * static_cast<std::size_t>(shape.head_dim)], &out.lse[place]);
    }
  }
  recipe.after(data, out);
  return out;
}

/// A list of faults, each one changed step of a Recipe.
class Faults {
 public:
  template <class Edit>
  void add(const char* name, const char* what, const Edit& edit, bool fp8_p = false) {
    Recipe recipe;
    edit(recipe);
    faults_.push_back(
        {name, what, fp8_p, [recipe](const CaseData& data) { return attend(data, recipe); }});
  }
  /// A fault of what is written.
  template <class After>
  void add_after(const char* name, const char* what, const After& after) {
    add(name, what, [&](Recipe& recipe) { recipe.after = after; });
  }
  /// A fault of the keys that a row sees: `sees` gets the right answer, too.
  template <class Sees>
  void add_mask(const char* name, const char* what, const Sees& sees) {
    add(name, what, [&](Recipe& recipe) {
      const auto right = recipe.sees;
      recipe.sees = [right, sees](const Shape& shape, std::int64_t row, std::int64_t key) {
        return sees(shape, row, key, right(shape, row, key));
      };
    });
  }
  void push(ModelFault fault) { faults_.push_back(std::move(fault)); }
  std::vector<ModelFault> take() { return std::move(faults_); }

 private:
  std::vector<ModelFault> faults_;
};

void add_output_faults(Faults& faults) {
  faults.add_after("all_zeros", "O is 0", [](const CaseData&, Attended& out) {
    std::fill(out.o.begin(), out.o.end(), 0.0F);
  });
  faults.add_after("one_head_zero", "one head of O is 0", [](const CaseData& data, Attended& out) {
    const auto size = static_cast<std::ptrdiff_t>(data.shape.seq_q * data.shape.head_dim);
    std::fill(out.o.end() - size, out.o.end(), 0.0F);
  });
  faults.add_after("one_row_zero", "the last row of O is 0",
                   [](const CaseData& data, Attended& out) {
                     std::fill(out.o.end() - data.shape.head_dim, out.o.end(), 0.0F);
                   });
  faults.add_after("one_row_of_another", "one row of O is the row before",
                   [](const CaseData& data, Attended& out) {
                     const auto dim = static_cast<std::ptrdiff_t>(data.shape.head_dim);
                     std::copy_n(out.o.end() - 2 * dim, dim, out.o.end() - dim);
                   });
  faults.add_after("sign_flip", "O has the other sign", [](const CaseData&, Attended& out) {
    for (float& x : out.o) x = -x;
  });
  faults.add_after("p_scale_not_compensated", "O keeps the 2^8 of P",
                   [](const CaseData&, Attended& out) {
                     for (float& x : out.o) x *= 256.0F;
                   });
  faults.add_after(
      "o_rounded_to_e4m3", "O is rounded to E4M3 on its way out",
      [](const CaseData&, Attended& out) {
        for (float& x : out.o) {
          x = reference::decode_table(Dtype::kE4M3)[reference::encode_code(x, Dtype::kE4M3)];
        }
      });
  faults.add_after("o_rounded_toward_zero_in_bf16", "O is cut to bf16 and called half",
                   [](const CaseData&, Attended& out) {
                     for (float& x : out.o) {
                       x = reference::decode_16(reference::encode_16(x * 0.997F, Dtype::kBFloat16),
                                                Dtype::kBFloat16);
                     }
                   });
  faults.add_after("lse_in_base_2", "the LSE is a base-2 logarithm",
                   [](const CaseData&, Attended& out) {
                     for (float& x : out.lse) x *= 1.44269504F;
                   });
  faults.add_after("lse_of_the_next_row", "the LSE is one row off",
                   [](const CaseData&, Attended& out) {
                     std::rotate(out.lse.begin(), out.lse.begin() + 1, out.lse.end());
                   });
  faults.add_after("masked_row_finite_lse", "a row without keys has a finite LSE",
                   [](const CaseData&, Attended& out) {
                     for (float& x : out.lse) x = std::isinf(x) ? -1e30F : x;
                   });
  faults.add_after("masked_row_not_zero", "a row without keys is not 0",
                   [](const CaseData& data, Attended& out) {
                     for (std::size_t i = 0; i < out.lse.size(); ++i) {
                       if (std::isinf(out.lse[i])) {
                         out.o[i * static_cast<std::size_t>(data.shape.head_dim)] = 1e-3F;
                       }
                     }
                   });
  faults.add_after("nan_laundered", "NaN becomes 0", [](const CaseData&, Attended& out) {
    for (auto* values : {&out.o, &out.lse}) {
      for (float& x : *values) x = std::isnan(x) ? 0.0F : x;
    }
  });
  faults.push({"stale_output", "O is that of other inputs", false, [](const CaseData& data) {
                 constexpr std::uint64_t kOther = 1000;
                 return attend_rightly(
                     *reference::make_case(data.shape, data.seed + kOther, data.dtype));
               }});
}

void add_mask_faults(Faults& faults) {
  faults.add_mask("causal_one_too_many", "a causal row sees one key too many",
                  [](const Shape& shape, std::int64_t row, std::int64_t key, bool right) {
                    return right || (shape.mask == Mask::kCausal &&
                                     key == row + shape.seq_kv - shape.seq_q + 1);
                  });
  faults.add_mask("causal_one_too_few", "a causal row misses its last key",
                  [](const Shape& shape, std::int64_t row, std::int64_t key, bool right) {
                    return right &&
                           (shape.mask != Mask::kCausal || key < row + shape.seq_kv - shape.seq_q);
                  });
  faults.add_mask("causal_top_left", "the causal mask is aligned top-left",
                  [](const Shape& shape, std::int64_t row, std::int64_t key, bool right) {
                    return shape.mask == Mask::kCausal ? key <= row : right;
                  });
  faults.add_mask("causal_ignored", "the mask is not applied",
                  [](const Shape&, std::int64_t, std::int64_t, bool) { return true; });
  faults.add_mask("causal_by_tiles", "only whole tiles of 32 keys are masked",
                  [](const Shape& shape, std::int64_t row, std::int64_t key, bool right) {
                    constexpr std::int64_t kTile = 32;
                    return right || (shape.mask == Mask::kCausal &&
                                     key / kTile * kTile <= row + shape.seq_kv - shape.seq_q);
                  });
  faults.add_mask(
      "first_tile_dropped", "the first 32 keys are dropped",
      [](const Shape&, std::int64_t, std::int64_t key, bool right) { return right && key >= 32; });
  faults.add_mask("last_tile_dropped", "the last partial tile of keys is dropped",
                  [](const Shape& shape, std::int64_t, std::int64_t key, bool right) {
                    return right && key < shape.seq_kv / 32 * 32;
                  });
  faults.add_mask("one_key_of_2048_dropped", "one key is dropped",
                  [](const Shape& shape, std::int64_t, std::int64_t key, bool right) {
                    return right && (shape.seq_kv < 2048 || key != 1001);
                  });
  faults.add_mask("every_64th_key_dropped", "the last key of each tile of 64 is dropped",
                  [](const Shape&, std::int64_t, std::int64_t key, bool right) {
                    return right && key % 64 != 63;
                  });
}

void add_scale_faults(Faults& faults) {
  faults.add("mean_of_v", "every weight is 1", [](Recipe& recipe) {
    recipe.score_scale = [](const CaseData&, std::size_t, std::size_t) { return 0.0; };
  });
  const auto score = [](const char* name, const char* what, const auto& factor, Faults& list) {
    list.add(name, what, [&](Recipe& recipe) {
      const auto right = recipe.score_scale;
      recipe.score_scale = [right, factor](const CaseData& data, std::size_t q, std::size_t kv) {
        return right(data, q, kv) * factor(data, q, kv);
      };
    });
  };
  score(
      "q_scale_ignored", "descale_q is not applied",
      [](const CaseData& data, std::size_t q, std::size_t) { return 1.0 / data.q.descales[q]; },
      faults);
  score(
      "k_scale_squared", "descale_k is applied twice",
      [](const CaseData& data, std::size_t, std::size_t kv) { return double{data.k.descales[kv]}; },
      faults);
  score(
      "k_scale_3_percent_off", "descale_k is 3 % too large",
      [](const CaseData&, std::size_t, std::size_t) { return 1.03; }, faults);
  score(
      "softmax_scale_missing", "scores are not divided by sqrt(head_dim)",
      [](const CaseData& data, std::size_t, std::size_t) { return 1.0 / data.softmax_scale; },
      faults);
  score(
      "k_scale_of_the_query_head", "descale_k is indexed by the query head",
      [](const CaseData& data, std::size_t q, std::size_t kv) {
        return data.k.descales[q % data.k.descales.size()] / double{data.k.descales[kv]};
      },
      faults);
  faults.add("v_scale_ignored", "descale_v is not applied", [](Recipe& recipe) {
    recipe.value_scale = [](const CaseData&, std::size_t) { return 1.0; };
  });
  faults.add("k_and_v_scales_swapped", "descale_k and descale_v are swapped", [](Recipe& recipe) {
    recipe.value_scale = [](const CaseData& data, std::size_t kv) {
      return double{data.k.descales[kv]};
    };
    recipe.score_scale = [](const CaseData& data, std::size_t q, std::size_t kv) {
      return static_cast<double>(data.q.descales[q]) * data.v.descales[kv] * data.softmax_scale;
    };
  });
  faults.add("v_scale_of_batch_0", "descale_v is that of the first batch", [](Recipe& recipe) {
    recipe.value_scale = [](const CaseData& data, std::size_t kv) {
      return double{data.v.descales[kv % static_cast<std::size_t>(data.shape.heads_kv)]};
    };
  });
  faults.add("gqa_heads_interleaved", "query head h reads KV head h mod heads_kv",
             [](Recipe& recipe) {
               recipe.kv_head = [](const Shape& shape, std::int64_t head) {
                 return head % shape.heads_kv;
               };
             });
  faults.add("gqa_always_head_0", "every query head reads KV head 0", [](Recipe& recipe) {
    recipe.kv_head = [](const Shape&, std::int64_t) { return std::int64_t{0}; };
  });
}

void add_arithmetic_faults(Faults& faults) {
  faults.add("exp_by_a_straight_line", "2^x is (1 + fraction) 2^floor(x)", [](Recipe& recipe) {
    recipe.exponential = [](double x) {
      const double y = x * 1.4426950408889634;
      return std::ldexp(1.0 + (y - std::floor(y)), static_cast<int>(std::floor(y)));
    };
  });
  faults.add("row_sum_in_bf16", "the row sum is cut to bf16 after each key", [](Recipe& recipe) {
    recipe.add = [](double sum, double term) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(sum + term));
      return double{std::bit_cast<float>(bits & 0xFFFF0000U)};
    };
  });
  faults.add("l_missing", "O is not divided by the row sum",
             [](Recipe& recipe) { recipe.add = [](double, double) { return 1.0; }; });
  faults.add(
      "weights_in_unscaled_e4m3", "P is rounded to E4M3 without a scale",
      [](Recipe& recipe) {
        recipe.rounded = [](double weight) {
          const auto code = reference::encode_code(static_cast<float>(weight), Dtype::kE4M3);
          return double{reference::decode_table(Dtype::kE4M3)[code]};
        };
      },
      /*fp8_p=*/true);
  faults.add(
      "weights_saturate", "P is scaled by 2^9 and saturates at 448",
      [](Recipe& recipe) {
        recipe.rounded = [](double weight) { return std::min(weight, 448.0 / 512.0); };
      },
      /*fp8_p=*/true);
  faults.add("weights_in_e4m3_of_a_half_kernel", "P is rounded to E4M3 where half is promised",
             [](Recipe& recipe) {
               recipe.rounded = [](double weight) {
                 const auto code =
                     reference::encode_code(static_cast<float>(weight * 256.0), Dtype::kE4M3);
                 return reference::decode_table(Dtype::kE4M3)[code] / 256.0;
               };
             });
  faults.add("v_dims_swapped", "neighbouring dims of V are swapped",
             [](Recipe& recipe) { recipe.dim_of_v = [](std::size_t dim) { return dim ^ 1U; }; });
  faults.push({"accumulator_never_promoted", "P V stays in a 13-bit accumulator", true,
               [](const CaseData& data) {
                 reference::ModelOptions options;
                 options.weights = reference::Weights::kE4M3;
                 options.accumulator = reference::Accumulator::kTruncated13Carried;
                 reference::Attention attention =
                     run_model(data.q, data.k, data.v, reference::sizes_of(data.shape),
                               data.softmax_scale, options)
                         .attention;
                 return Attended{std::move(attention.o), std::move(attention.lse)};
               }});
}

}  // namespace

Attended attend_rightly(const CaseData& data) { return attend(data, Recipe{}); }

std::vector<ModelFault> model_faults() {
  Faults faults;
  add_output_faults(faults);
  add_mask_faults(faults);
  add_scale_faults(faults);
  add_arithmetic_faults(faults);
  return faults.take();
}

}  // namespace fp8_sdpa::wrong
