#include "reference/oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/inputs/inputs.hpp"
#include "tests/host/reference/cpu_vectors.hpp"

namespace fp8_sdpa::reference {
namespace {

Inputs draw(const AttentionSizes& sizes, std::uint64_t seed = 0) {
  Shape shape;
  shape.batch = sizes.batch;
  shape.heads_q = sizes.heads_q;
  shape.heads_kv = sizes.heads_kv;
  shape.seq_q = sizes.seq_q;
  shape.seq_kv = sizes.seq_kv;
  shape.head_dim = sizes.head_dim;
  shape.inputs.family = "normal";
  auto inputs = draw_inputs(shape, seed);
  EXPECT_TRUE(inputs.ok());
  return std::move(*inputs);
}

Attention run(const Inputs& inputs, const AttentionSizes& sizes, double scale, int threads = 0) {
  return attention_fp64(inputs.q, inputs.k, inputs.v, sizes, scale, threads);
}

/// The definition, one output element at a time.
void expect_definition(const Inputs& inputs, const AttentionSizes& sizes, double scale) {
  const Attention got = run(inputs, sizes, scale);
  const std::int64_t dim = sizes.head_dim;
  for (std::int64_t row = 0; row < std::int64_t{sizes.batch} * sizes.heads_q * sizes.seq_q; ++row) {
    const std::int64_t head = row / sizes.seq_q;
    const std::int64_t i = row % sizes.seq_q;
    const std::int64_t kv_head = head / sizes.heads_q * sizes.heads_kv +
                                 head % sizes.heads_q / (sizes.heads_q / sizes.heads_kv);
    long double sum = 0;
    std::vector<long double> o(static_cast<std::size_t>(dim));
    for (std::int64_t j = 0; j < sizes.seq_kv; ++j) {
      if (sizes.mask == Mask::kCausal && j > i + sizes.seq_kv - sizes.seq_q) continue;
      const std::size_t key = static_cast<std::size_t>((kv_head * sizes.seq_kv + j) * dim);
      long double score = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        score += static_cast<long double>(inputs.q[static_cast<std::size_t>(row * dim + d)]) *
                 inputs.k[key + static_cast<std::size_t>(d)];
      }
      const long double p = std::exp(score * scale);
      sum += p;
      for (std::int64_t d = 0; d < dim; ++d) {
        o[static_cast<std::size_t>(d)] += p * inputs.v[key + static_cast<std::size_t>(d)];
      }
    }
    const auto lse = static_cast<double>(std::log(sum));
    if (sum == 0) {
      EXPECT_EQ(got.lse[static_cast<std::size_t>(row)], -INFINITY) << "row " << row;
    } else {
      EXPECT_NEAR(got.lse[static_cast<std::size_t>(row)], lse, 1e-6 * (1 + std::fabs(lse)));
    }
    for (std::int64_t d = 0; d < dim; ++d) {
      const auto want = sum == 0 ? 0.0 : static_cast<double>(o[static_cast<std::size_t>(d)] / sum);
      ASSERT_NEAR(got.o[static_cast<std::size_t>(row * dim + d)], want, 1e-6)
          << "row " << row << ", dim " << d;
    }
  }
}

struct NamedSizes {
  const char* name;
  AttentionSizes sizes;
};
void PrintTo(const NamedSizes& sizes, std::ostream* out) { *out << sizes.name; }

class Oracle : public testing::TestWithParam<NamedSizes> {};

TEST_P(Oracle, ComputesTheDefinition) {
  const AttentionSizes& sizes = GetParam().sizes;
  expect_definition(draw(sizes), sizes, 1.0 / std::sqrt(static_cast<double>(sizes.head_dim)));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Oracle,
    testing::Values(NamedSizes{"small", {1, 1, 1, 32, 32, 64, Mask::kNone}},
                    NamedSizes{"one", {1, 1, 1, 1, 1, 1, Mask::kNone}},
                    NamedSizes{"odd", {2, 3, 3, 13, 29, 5, Mask::kNone}},
                    NamedSizes{"gqa", {2, 6, 2, 9, 17, 16, Mask::kNone}},
                    NamedSizes{"mqa_causal", {1, 4, 1, 21, 21, 8, Mask::kCausal}},
                    NamedSizes{"causal_more_keys", {1, 2, 2, 7, 18, 12, Mask::kCausal}},
                    NamedSizes{"causal_more_queries", {1, 2, 1, 19, 6, 12, Mask::kCausal}},
                    NamedSizes{"wide", {1, 1, 1, 10, 70, 128, Mask::kCausal}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(OracleFacts, RowsWithoutKeysAreZero) {
  const AttentionSizes sizes{1, 1, 1, 8, 3, 16, Mask::kCausal};
  const Attention got = run(draw(sizes), sizes, 0.25);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(got.lse[row], -INFINITY);
    for (std::size_t d = 0; d < 16; ++d) EXPECT_EQ(got.o[row * 16 + d], 0.0F);
  }
  EXPECT_TRUE(std::isfinite(got.lse[5]));
}

TEST(OracleFacts, ConstantValuesComeBack) {
  const AttentionSizes sizes{1, 1, 1, 5, 300, 16, Mask::kNone};
  Inputs inputs = draw(sizes);
  std::fill(inputs.v.begin(), inputs.v.end(), 0.7F);
  for (const float value : run(inputs, sizes, 0.25).o) EXPECT_EQ(value, 0.7F);
}

TEST(OracleFacts, EqualScoresGiveTheMeanAndTheLogOfTheCount) {
  const AttentionSizes sizes{1, 1, 1, 3, 50, 8, Mask::kNone};
  Inputs inputs = draw(sizes);
  std::fill(inputs.q.begin(), inputs.q.end(), 0.0F);
  const Attention got = run(inputs, sizes, 0.25);
  double mean = 0.0;
  for (std::size_t j = 0; j < 50; ++j) mean += inputs.v[j * 8] / 50.0;
  EXPECT_NEAR(got.o[0], mean, 1e-6);
  EXPECT_NEAR(got.lse[0], std::log(50.0), 1e-6);
}

TEST(OracleFacts, HugeScoresDoNotOverflow) {
  const AttentionSizes sizes{1, 1, 1, 4, 9, 8, Mask::kNone};
  Inputs inputs = draw(sizes);
  for (float& value : inputs.q) value *= 1e6F;
  const Attention got = run(inputs, sizes, 1.0);
  for (const float value : got.o) EXPECT_TRUE(std::isfinite(value));
  for (const float value : got.lse) EXPECT_TRUE(std::isfinite(value));
}

TEST(OracleFacts, NanReachesWhatAttendsToItAndNothingElse) {
  const AttentionSizes sizes{1, 1, 1, 16, 16, 8, Mask::kCausal};
  const Inputs clean = draw(sizes);
  const Attention want = run(clean, sizes, 0.25);
  constexpr std::size_t kKey = 10;
  for (const bool in_k : {true, false}) {
    Inputs inputs = clean;
    (in_k ? inputs.k : inputs.v)[kKey * 8 + 3] = std::nanf("");
    const Attention got = run(inputs, sizes, 0.25);
    for (std::size_t row = 0; row < 16; ++row) {
      const bool sees = row >= kKey;
      EXPECT_EQ(std::isnan(got.lse[row]), sees && in_k) << row;
      for (std::size_t d = 0; d < 8; ++d) {
        if (sees && (in_k || d == 3)) {
          EXPECT_TRUE(std::isnan(got.o[row * 8 + d])) << row << ", " << d;
        } else {
          EXPECT_EQ(got.o[row * 8 + d], want.o[row * 8 + d]) << row << ", " << d;
        }
      }
    }
  }
}

TEST(OracleFacts, ThreadsDoNotChangeBits) {
  const AttentionSizes sizes{2, 4, 2, 37, 41, 24, Mask::kCausal};
  const Inputs inputs = draw(sizes);
  const Attention one = run(inputs, sizes, 0.2, 1);
  const Attention many = run(inputs, sizes, 0.2, 7);
  EXPECT_EQ(one.o, many.o);
  EXPECT_EQ(one.lse, many.lse);
}

/// Also where blocks of rows and panels of keys and dims are not full.
TEST(OracleFacts, VectorsDoNotChangeBits) {
  for (const std::int64_t rows : {3, 8, 37}) {
    const AttentionSizes sizes{1, 2, 1, rows, 700, 20, Mask::kCausal};
    const Inputs inputs = draw(sizes);
    const auto by = [&](Vectors vectors) {
      return attention_fp64(inputs.q, inputs.k, inputs.v, sizes, 0.2, 0, {}, vectors);
    };
    const Attention plain = by(Vectors::kBaseline);
    for (const Vectors vectors : vectors_of_this_cpu()) {
      EXPECT_EQ(by(vectors).o, plain.o);
      EXPECT_EQ(by(vectors).lse, plain.lse);
    }
  }
}

TEST(OracleFacts, RowsSeeTheKeysThatAreSaid) {
  const AttentionSizes causal{1, 2, 2, 20, 30, 8, Mask::kCausal};
  const Inputs inputs = draw(causal);
  AttentionSizes unmasked = causal;
  unmasked.mask = Mask::kNone;
  std::vector<std::int64_t> keys;
  for (std::int64_t row = 0; row < causal.seq_q; ++row) keys.push_back(visible_keys(causal, row));
  const Attention want = run(inputs, causal, 0.2);
  const Attention got = attention_fp64(inputs.q, inputs.k, inputs.v, unmasked, 0.2, 0, keys);
  EXPECT_EQ(got.o, want.o);
  EXPECT_EQ(got.lse, want.lse);
  EXPECT_NE(run(inputs, unmasked, 0.2).o, want.o);
}

TEST(OracleFacts, VisibleKeysAreBottomRight) {
  const AttentionSizes sizes{1, 1, 1, 4, 6, 8, Mask::kCausal};
  EXPECT_EQ(visible_keys(sizes, 0), 3);
  EXPECT_EQ(visible_keys(sizes, 3), 6);
  const AttentionSizes short_kv{1, 1, 1, 6, 4, 8, Mask::kCausal};
  EXPECT_EQ(visible_keys(short_kv, 0), 0);
  EXPECT_EQ(visible_keys(short_kv, 1), 0);
  EXPECT_EQ(visible_keys(short_kv, 2), 1);
}

}  // namespace
}  // namespace fp8_sdpa::reference
