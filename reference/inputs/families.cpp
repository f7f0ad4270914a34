#include "reference/inputs/families.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "reference/formats/parallel.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::reference {
namespace {

/// Streams of words beside the operands' own. Part of the families' definition: never renumber.
enum class Extra : std::uint32_t { kPick = 16, kSize = 32, kHead = 48 };

PhiloxStream stream_of(const Drawing& drawing) {
  return {drawing.seed, static_cast<std::uint32_t>(drawing.operand)};
}
PhiloxStream stream_of(const Drawing& drawing, Extra extra) {
  return {drawing.seed,
          static_cast<std::uint32_t>(drawing.operand) + static_cast<std::uint32_t>(extra)};
}

/// out[i] = transform(word i of the operand's stream).
template <class Transform>
void fill(const Drawing& drawing, const Transform& transform) {
  const PhiloxStream stream = stream_of(drawing);
  // Chunks begin with a block of the stream.
  parallel_chunks(std::ssize(drawing.out), [&](std::int64_t first, std::int64_t last) {
    PhiloxCounter words{};
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      const std::size_t lane = i % PhiloxStream::kWordsPerBlock;
      if (lane == 0) words = stream.block(i / PhiloxStream::kWordsPerBlock);
      drawing.out[i] = transform(words[lane]);
    }
  });
}

void fill_normal(const Drawing& drawing, double mean, double stddev) {
  fill(drawing, [&](std::uint32_t word) { return normal_from_word(word, mean, stddev); });
}

/// Row `row` of head `head`, which counts over (batch, heads).
std::span<float> row_of(const Drawing& drawing, std::int64_t head, std::int64_t row) {
  const auto dim = static_cast<std::size_t>(drawing.shape.head_dim);
  return drawing.out.subspan(static_cast<std::size_t>(head * drawing.seq() + row) * dim, dim);
}

std::int64_t heads_total(const Drawing& drawing) {
  return std::int64_t{drawing.shape.batch} * drawing.heads();
}

/// Makes the keys that key_of(head) names score `score` with queries whose every dim is about 1, at
/// the scale 1 / sqrt(head_dim).
template <class KeyOf>
void plant_key(const Drawing& drawing, double score, const KeyOf& key_of) {
  const auto value =
      static_cast<float>(score / std::sqrt(static_cast<double>(drawing.shape.head_dim)));
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    for (float& x : row_of(drawing, head, key_of(head))) x = value;
  }
}

/// Queries that a planted key meets: 1 in every dim, and a little noise.
void draw_planted_queries(const Drawing& drawing) {
  constexpr double kNoise = 0.25;
  fill_normal(drawing, 1.0, kNoise);
}

double log_keys(const Drawing& drawing) {
  return portable_log(static_cast<double>(drawing.shape.seq_kv));
}

float sign_of(std::uint32_t word) { return (word & 0x80000000U) != 0 ? -1.0F : 1.0F; }

/// 448 * 2^-8: as an amax it makes the descale of E4M3 2^-8 and that of E5M2 2^-15, so that codes
/// times a power of two are the values.
constexpr float kExactAmax = 1.75F;

}  // namespace

// Uniform in [low, high).
void draw_uniform(const Drawing& drawing) {
  const InputSpec& spec = drawing.shape.inputs;
  fill(drawing, [&](std::uint32_t word) { return uniform_from_word(word, spec.low, spec.high); });
}

void draw_normal(const Drawing& drawing) {
  fill_normal(drawing, drawing.shape.inputs.mean, drawing.shape.inputs.stddev);
}

// N(0, 1) + N(0, 100) Bernoulli(0.001). Source: FlashAttention-3 (arXiv 2407.08608), section 4.3.
void draw_outliers(const Drawing& drawing) {
  constexpr auto kOften = static_cast<std::uint32_t>(0.001 * 0x1p32);
  constexpr double kStddev = 10.0;
  fill_normal(drawing, 0.0, 1.0);
  const PhiloxStream pick = stream_of(drawing, Extra::kPick);
  const PhiloxStream size = stream_of(drawing, Extra::kSize);
  for (std::size_t i = 0; i < drawing.out.size(); ++i) {
    if (pick.word(i) < kOften) drawing.out[i] += normal_from_word(size.word(i), 0.0, kStddev);
  }
}

// Scores of standard deviation 8: a handful of keys holds all of the weight.
void draw_peaked(const Drawing& drawing) {
  constexpr double kQueries = 4.0;
  constexpr double kKeys = 2.0;
  fill_normal(
      drawing, 0.0,
      drawing.operand == Operand::kQ ? kQueries : (drawing.operand == Operand::kK ? kKeys : 1.0));
}

// One key somewhere holds nearly all of the weight of every query; its value is unlike the others.
void draw_needle(const Drawing& drawing) {
  constexpr double kAbove = 6.0;
  constexpr double kNoise = 0.5;
  constexpr float kValue = 2.0F;
  const auto needle = [&](std::int64_t head) {
    return needle_of(drawing.seed, head, drawing.shape.seq_kv);
  };
  if (drawing.operand == Operand::kQ) return draw_planted_queries(drawing);
  fill_normal(drawing, 0.0, drawing.operand == Operand::kK ? kNoise : 1.0);
  if (drawing.operand == Operand::kK) {
    return plant_key(drawing, log_keys(drawing) + kAbove, needle);
  }
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    for (float& x : row_of(drawing, head, needle(head))) x = x < 0.0F ? -kValue : kValue;
  }
}

// The first key takes most of the weight of every query and has next to no value (attention sink,
// arXiv 2309.17453): what matters is what is left.
void draw_sink(const Drawing& drawing) {
  constexpr double kAbove = 3.0;
  constexpr double kNoise = 0.5;
  constexpr float kValue = 0.0625F;
  const auto first = [](std::int64_t) { return std::int64_t{0}; };
  if (drawing.operand == Operand::kQ) return draw_planted_queries(drawing);
  fill_normal(drawing, 0.0, drawing.operand == Operand::kK ? kNoise : 1.0);
  if (drawing.operand == Operand::kK) {
    return plant_key(drawing, log_keys(drawing) + kAbove, first);
  }
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    for (float& x : row_of(drawing, head, 0)) x *= kValue;
  }
}

// Every key of a head has the same large vector added, as real models' keys have (SageAttention,
// arXiv 2410.02367, section 4.2): it cancels in the softmax, unless scores are kept too coarsely.
void draw_k_bias(const Drawing& drawing) {
  constexpr double kStddev = 8.0;
  fill_normal(drawing, 0.0, 1.0);
  if (drawing.operand != Operand::kK) return;
  const PhiloxStream bias = stream_of(drawing, Extra::kHead);
  const auto dim = static_cast<std::size_t>(drawing.shape.head_dim);
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    for (std::int64_t row = 0; row < drawing.seq(); ++row) {
      const std::span<float> x = row_of(drawing, head, row);
      for (std::size_t d = 0; d < dim; ++d) {
        x[d] +=
            normal_from_word(bias.word(static_cast<std::uint64_t>(head) * dim + d), 0.0, kStddev);
      }
    }
  }
}

// V is 1 and a little noise: sums of one sign, which a truncating accumulator makes too small.
void draw_v_bias(const Drawing& drawing) {
  constexpr double kNoise = 0.125;
  const bool is_v = drawing.operand == Operand::kV;
  fill_normal(drawing, is_v ? 1.0 : 0.0, is_v ? kNoise : 1.0);
}

// Half of the elements are the largest finite codes, +-448 (E4M3), the others its subnormals and
// zeros of both signs; every value is a code times a power of two.
void draw_edges(const Drawing& drawing) {
  constexpr float kSubnormal = 0x1p-17F;  // 2^-9, the smallest code, at the descale 2^-8
  constexpr std::uint32_t kSubnormals = 8;
  fill(drawing, [&](std::uint32_t word) {
    const float sign = sign_of(word);
    if ((word & 1U) != 0) return sign * kExactAmax;
    return sign * kSubnormal * static_cast<float>(word >> 1 & (kSubnormals - 1));
  });
}

// Every value is 1: O is 1 in every element, whatever the weights.
void draw_constant_v(const Drawing& drawing) {
  if (drawing.operand == Operand::kV) return fill(drawing, [](std::uint32_t) { return 1.0F; });
  fill_normal(drawing, 0.0, 1.0);
}

// Query i is key i mod seq_kv, both of +-4: its score is 128, and the others' 16 N(0, 1). P is one
// 1, O a row of V.
void draw_one_hot(const Drawing& drawing) {
  constexpr float kValue = 4.0F;
  if (drawing.operand == Operand::kV) return fill_normal(drawing, 0.0, 1.0);
  if (drawing.operand == Operand::kK) {
    return fill(drawing, [](std::uint32_t word) { return sign_of(word) * kValue; });
  }
  const Shape& shape = drawing.shape;
  const PhiloxStream keys(drawing.seed, static_cast<std::uint32_t>(Operand::kK));
  const std::int64_t group = shape.heads_q / shape.heads_kv;
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    for (std::int64_t row = 0; row < drawing.seq(); ++row) {
      const std::int64_t key = head / group * shape.seq_kv + row % shape.seq_kv;
      const std::span<float> x = row_of(drawing, head, row);
      for (std::size_t d = 0; d < x.size(); ++d) {
        x[d] = sign_of(keys.word(static_cast<std::uint64_t>(key) * x.size() + d)) * kValue;
      }
    }
  }
}

// K is 0, so every weight is 1; V's values are +-1.75 * 2^-n, n < 4. Where seq_kv is a power of two
// up to 128, every sum and quotient is exact, and the output known to the bit.
void draw_zero_k(const Drawing& drawing) {
  if (drawing.operand == Operand::kQ) return fill_normal(drawing, 0.0, 1.0);
  if (drawing.operand == Operand::kK) return fill(drawing, [](std::uint32_t) { return 0.0F; });
  constexpr std::array kScales = {1.0F, 0.5F, 0.25F, 0.125F};
  fill(drawing, [&](std::uint32_t word) {
    return sign_of(word) * kExactAmax * kScales[word % kScales.size()];
  });
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    row_of(drawing, head, 0)[0] = kExactAmax;  // the amax, whatever was drawn
  }
}

// The first key has weight 1, every other about e^-9, which E4M3 without a scale calls 0; V is -1
// at the first key and 1 at the others, so the tail's mass shows.
void draw_long_tail(const Drawing& drawing) {
  constexpr double kAbove = 9.0;
  constexpr double kNoise = 0.0625;
  if (drawing.operand == Operand::kQ) return draw_planted_queries(drawing);
  const bool is_v = drawing.operand == Operand::kV;
  fill_normal(drawing, is_v ? 1.0 : 0.0, kNoise);
  if (!is_v) return plant_key(drawing, kAbove, [](std::int64_t) { return std::int64_t{0}; });
  for (std::int64_t head = 0; head < heads_total(drawing); ++head) {
    for (float& x : row_of(drawing, head, 0)) x = -x;
  }
}

std::int64_t needle_of(std::uint64_t seed, std::int64_t head, std::int64_t seq_kv) {
  const PhiloxStream place(seed, static_cast<std::uint32_t>(Extra::kHead));
  return static_cast<std::int64_t>(place.word(static_cast<std::uint64_t>(head)) %
                                   static_cast<std::uint64_t>(seq_kv));
}

}  // namespace fp8_sdpa::reference
