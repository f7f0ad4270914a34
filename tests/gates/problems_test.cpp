// What the named shapes do not ask: partial tiles, S_q != S_kv, both FP8 formats, all outputs, both
// layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/judge/harness.hpp"
#include "tests/gates/subject.hpp"

namespace fp8_sdpa::tests {
namespace {

class Problems : public VariantTest {};

// Every length around the tile sizes, as many queries as keys.
TEST_P(Problems, EveryLengthAroundTheTiles) {
  if (!ready_) return;
  for (const int seq : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 97, 127, 128, 129}) {
    SCOPED_TRACE(seq);
    reference::CheckOptions options;
    options.padded = seq % 2 != 0;
    for (const int head_dim : head_dims()) {
      expect_pass_or_known_decline(variant(), make_shape(1, 2, seq, seq, head_dim), 3, device_,
                                   options);
    }
  }
}

TEST_P(Problems, MoreKeysThanQueriesAndFewer) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv] : {std::pair{1, 129}, {113, 203}, {70, 1}, {33, 32}, {32, 33}}) {
    SCOPED_TRACE(testing::Message() << seq_q << " x " << seq_kv);
    for (const int head_dim : head_dims()) {
      expect_pass_or_known_decline(variant(), make_shape(2, 3, seq_q, seq_kv, head_dim), 4,
                                   device_);
    }
  }
}

// The first rows see a handful of keys, in problems that are judged as the named shapes are.
TEST_P(Problems, CausalRowsThatSeeFewKeys) {
  if (!ready_) return;
  for (const int seq : {129, 200}) {
    SCOPED_TRACE(seq);
    for (const int head_dim : head_dims()) {
      reference::Shape shape = make_shape(1, 2, seq, seq, head_dim);
      shape.mask = Mask::kCausal;
      shape.name += "_causal";
      expect_pass_or_known_decline(variant(), shape, 5, device_);
    }
  }
}

// NaN between the rows and behind each head, and an error for whoever reads it under
// AddressSanitizer.
TEST_P(Problems, NothingBetweenTheRowsIsRead) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv] : {std::pair{33, 161}, {70, 1}, {1, 65}}) {
    for (const bool sequence_major : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << seq_q << " x " << seq_kv << (sequence_major ? " (B,S,H,D)" : " (B,H,S,D)"));
      reference::CheckOptions options;
      options.padded = true;
      options.sequence_major = sequence_major;
      for (const int head_dim : head_dims()) {
        expect_pass_or_known_decline(variant(), make_shape(2, 2, seq_q, seq_kv, head_dim), 4,
                                     device_, options);
      }
    }
  }
}

TEST_P(Problems, BothFormatsOutputsAndLayouts) {
  if (!ready_) return;
  for (const Dtype input : {Dtype::kE4M3, Dtype::kE5M2}) {
    for (const Dtype output : {Dtype::kHalf, Dtype::kBFloat16, Dtype::kE4M3}) {
      for (const bool sequence_major : {false, true}) {
        SCOPED_TRACE(testing::Message() << name_of(input) << " -> " << name_of(output)
                                        << (sequence_major ? " (B,S,H,D)" : " (B,H,S,D)"));
        reference::CheckOptions options;
        options.output = output;
        options.budgets_only = output == Dtype::kE4M3;
        options.sequence_major = sequence_major;
        for (const int head_dim : head_dims()) {
          for (const int seq_q : {5, 77}) {
            expect_pass_or_known_decline(variant(), make_shape(2, 2, seq_q, keys(77), head_dim), 5,
                                         device_, options, input);
          }
        }
      }
    }
  }
}

/// The codes that a value rounds to after a half has been rounded from it.
struct CodesOf {
  float low, high;
};
CodesOf codes_of_half(float half, float scale) {
  constexpr float kHalfUlp = 0x1p-11F;
  constexpr float kLeastHalf = 0x1p-25F;
  const float apart = 2.0F * kHalfUlp * std::abs(half) + kLeastHalf;
  const auto rounded = [&](float value) {
    const std::uint8_t code = reference::encode_code(value / scale, Dtype::kE4M3);
    return reference::decode_table(Dtype::kE4M3)[code] * scale;
  };
  return {rounded(half - apart), rounded(half + apart)};
}

// Whole and partial tiles of rows, work tiles that several blocks share, grouped heads; a scale
// with which nothing is saturated and one with which most is, and a NaN in V, which stays one.
TEST_P(Problems, AnOutputOfE4M3IsTheHalfOneRounded) {
  if (!ready_) return;
  const std::int64_t many = device_.backend == Backend::kHost ? 1100 : 11000;
  for (const int head_dim : head_dims()) {
    for (const auto& [heads_q, seq_q, seq_kv] :
         {std::tuple{4, rows(77), keys(77)}, {2, std::int64_t{40}, keys(many)}}) {
      reference::Shape shape = make_shape(1, 2, seq_q, seq_kv, head_dim);
      shape.heads_q = heads_q;
      if (few_keys()) shape.seq_kv = 100;
      reference::CheckOptions options;
      options.output = Dtype::kE4M3;
      if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
      reference::CaseData data = codes_of(shape, 6, codes());
      if (codes() == Dtype::kE4M3) data.v.codes[3] = 0x7F;
      const auto half = reference::run_variant(variant(), data, device_);
      ASSERT_TRUE(half.ok()) << half.status().message();
      float largest = 0.0F;
      for (const std::uint16_t bits : half->o) {
        const float value = std::abs(reference::decode_16(bits, Dtype::kHalf));
        if (std::isfinite(value)) largest = std::max(largest, value);
      }
      const float whole = std::exp2(std::ceil(std::log2(largest / 448.0F)));
      for (const float scale : {whole, whole / 32.0F}) {
        SCOPED_TRACE(testing::Message() << shape.name << ", scale " << scale);
        options.o_scale = scale;
        options.padded = scale < whole;
        options.sequence_major = options.padded;
        const auto rounded = reference::run_variant(variant(), data, device_, options);
        ASSERT_TRUE(rounded.ok()) << rounded.status().message();
        EXPECT_EQ(rounded->lse, half->lse);
        std::int64_t wrong = 0;
        std::int64_t saturated = 0;
        for (std::size_t i = 0; i < half->o.size(); ++i) {
          const float want = reference::decode_16(half->o[i], Dtype::kHalf);
          const float got = reference::decode_16(rounded->o[i], Dtype::kBFloat16);
          const CodesOf of = codes_of_half(want, scale);
          const bool right = std::isnan(want) ? std::isnan(got) : of.low <= got && got <= of.high;
          wrong += right ? 0 : 1;
          saturated += std::abs(got) == 448.0F * scale ? 1 : 0;
        }
        EXPECT_EQ(wrong, 0);
        EXPECT_TRUE(saturated > 0 || !options.padded);
      }
    }
  }
}

// V as a quantiser may leave it, (B,H,D,S): lengths that end a row of keys anywhere in 16 bytes,
// one KV tile and several, NaN in what pads the rows. Whoever does not serve it says so.
TEST_P(Problems, TransposedValues) {
  if (!ready_) return;
  for (const auto& [seq_q, seq_kv, head_dim] :
       {std::tuple{40, 1, 64}, {40, 48, 64}, {70, 333, 64}, {33, 203, 128}, {20, 300, 256}}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << seq_q << " x " << seq_kv << " x " << head_dim << (padded ? " padded" : ""));
      reference::CheckOptions options;
      options.transposed_v = true;
      options.padded = padded;
      expect_pass_or_known_decline(variant(), make_shape(1, 2, seq_q, seq_kv, head_dim), 8, device_,
                                   options);
    }
  }
}

TEST_P(Problems, WithoutLse) {
  if (!ready_) return;
  reference::CheckOptions options;
  options.lse = false;
  for (const int head_dim : head_dims()) {
    expect_pass(variant(), *case_data(make_shape(1, 1, 40, keys(40), head_dim), 6, codes()),
                device_, options);
  }
}

TEST_P(Problems, NoScaleMeansOneOverTheRootOfTheHeadDim) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(1, 1, 40, keys(22), head_dim);
    reference::CaseData data = *case_data(shape, 10, codes());
    const auto said = reference::run_variant(variant(), data, device_, {});
    ASSERT_TRUE(said.ok()) << said.status().message();
    data.softmax_scale = 0.0F;
    const auto left_out = reference::run_variant(variant(), data, device_, {});
    ASSERT_TRUE(left_out.ok()) << left_out.status().message();
    EXPECT_EQ(*left_out, *said) << head_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Problems,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(all_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
