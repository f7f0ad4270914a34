#include "reference/inputs/inputs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/families.hpp"
#include "reference/inputs/philox.hpp"

namespace fp8_sdpa::reference {
namespace {

Shape make_shape(const std::string& family) {
  Shape shape;
  shape.name = "test";
  shape.batch = 2;
  shape.heads_q = 4;
  shape.heads_kv = 2;
  shape.seq_q = 96;
  shape.seq_kv = 80;
  shape.head_dim = 64;
  shape.inputs.family = family;
  return shape;
}

/// FNV-1a over the bits of the values.
std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ (bits >> (8 * byte) & 0xFF)) * 0x100000001b3U;
    }
  }
  return hash;
}

std::uint64_t pinned_hash(std::string_view family) {
  static const std::map<std::string_view, std::uint64_t> kPinned = {
      {"uniform", 0xd0fe38a909d1448bU},   {"normal", 0x52a0af1fc377dba0U},
      {"outliers", 0xf29178e6bd5d647eU},  {"peaked", 0xe54c6a767ad34612U},
      {"needle", 0xf7fcd1876c3086ebU},    {"sink", 0x7174e5dc72679d8fU},
      {"k_bias", 0x3bc67921b9fc4a3fU},    {"v_bias", 0x0f94f726a23f1f99U},
      {"edges", 0xe0cfc36cf49ffd66U},     {"constant_v", 0xde9e6aa64abf10ddU},
      {"one_hot", 0xf55d727da6b9510eU},   {"zero_k", 0xb373a83bcd7e48bbU},
      {"long_tail", 0x1186ddd1f86ee2bdU},
  };
  const auto found = kPinned.find(family);
  return found == kPinned.end() ? 0 : found->second;
}

/// Large tensors are drawn and quantised by many threads, and are what one would have made.
TEST(Inputs, DoNotDependOnNameAndMask) {
  for (const InputFamily& family : input_families()) {
    const Shape shape = make_shape(std::string(family.name));
    Shape causal = shape;
    causal.name = "other";
    causal.mask = Mask::kCausal;
    EXPECT_TRUE(same_inputs(shape, causal));
    const auto one = draw_inputs(shape, 3);
    const auto other = draw_inputs(causal, 3);
    EXPECT_EQ(one->q, other->q) << family.name;
    EXPECT_EQ(one->k, other->k) << family.name;
    EXPECT_EQ(one->v, other->v) << family.name;
  }
  const Shape shape = make_shape("normal");
  for (const auto& change : std::vector<void (*)(Shape&)>{
           [](Shape& s) { ++s.batch; }, [](Shape& s) { s.heads_q = 2; },
           [](Shape& s) { s.heads_kv = 1; }, [](Shape& s) { ++s.seq_q; },
           [](Shape& s) { ++s.seq_kv; }, [](Shape& s) { s.head_dim = 128; },
           [](Shape& s) { s.inputs.family = "uniform"; }, [](Shape& s) { s.inputs.stddev = 2; }}) {
    Shape changed = shape;
    change(changed);
    EXPECT_FALSE(same_inputs(shape, changed));
  }
}

TEST(Inputs, LargeOnesBeginAsSmallOnes) {
  Shape shape = make_shape("normal");
  shape.batch = shape.heads_q = shape.heads_kv = 1;
  shape.seq_q = shape.seq_kv = 4096;
  const auto small = draw_inputs(shape, 3);
  shape.seq_q = shape.seq_kv = 9001;
  const auto large = draw_inputs(shape, 3);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_TRUE(std::equal(small->q.begin(), small->q.end(), large->q.begin()));
  std::vector<float> values = large->k;
  values[5] = values.back() = INFINITY;
  const QuantisedTensor whole = quantise(values, 1, std::ssize(values), Dtype::kE4M3);
  EXPECT_EQ(whole.saturated_infinities, 2);
  ASSERT_EQ(whole.codes.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(whole.codes[i], encode_code(values[i] / whole.descales.front(), Dtype::kE4M3)) << i;
  }
}

TEST(Distributions, UniformIsExactAndExcludesItsEnd) {
  EXPECT_EQ(uniform_from_word(0, -1.0, 1.0), -1.0F);
  EXPECT_EQ(uniform_from_word(0x80000000U, -1.0, 1.0), 0.0F);
  EXPECT_EQ(uniform_from_word(0xFFFFFFFFU, -1.0, 1.0), 1.0F - 0x1p-23F);
  EXPECT_EQ(uniform_from_word(0xFFU, -1.0, 1.0), -1.0F) << "the low 8 bits are not used";
  // Rounding to float would reach the end here.
  EXPECT_LT(uniform_from_word(0xFFFFFFFFU, 1000.0, 1001.0), 1001.0F);
}

TEST(Distributions, LogAgreesWithTheLibrary) {
  for (int i = 1; i < 20000; ++i) {
    const double x = std::ldexp(1.0 + i / 20000.0, -(i % 60));
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-14 * std::max(1.0, std::fabs(std::log(x)))) << x;
  }
  EXPECT_EQ(portable_log(1.0), 0.0);
}

TEST(Distributions, NormalQuantileInvertsTheDistributionFunction) {
  const auto distribution = [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); };
  for (int i = 1; i < 4096; ++i) {
    const double p = i / 4096.0;
    EXPECT_NEAR(distribution(normal_quantile(p)), p, 1e-14);
  }
  for (int exponent = 2; exponent <= 33; ++exponent) {
    const double p = std::ldexp(1.0, -exponent);
    EXPECT_NEAR(distribution(normal_quantile(p)) / p, 1.0, 1e-12) << "2^-" << exponent;
    EXPECT_NEAR(normal_quantile(1.0 - p), -normal_quantile(p), 1e-6) << "2^-" << exponent;
  }
}

TEST(Distributions, NormalHasItsMoments) {
  constexpr int kCount = 1 << 20;
  const PhiloxStream stream(11, 0);
  double sums[5] = {};
  int beyond_2 = 0;
  int beyond_4 = 0;
  for (int i = 0; i < kCount; ++i) {
    const double z = normal_from_word(stream.word(static_cast<std::uint64_t>(i)), 0.0, 1.0);
    double power = 1.0;
    for (double& sum : sums) {
      sum += power;
      power *= z;
    }
    beyond_2 += std::fabs(z) > 2.0 ? 1 : 0;
    beyond_4 += std::fabs(z) > 4.0 ? 1 : 0;
  }
  // Five standard deviations of each estimate.
  EXPECT_NEAR(sums[1] / kCount, 0.0, 5.0 / 1024);
  EXPECT_NEAR(sums[2] / kCount, 1.0, 5.0 * std::sqrt(2.0) / 1024);
  EXPECT_NEAR(sums[3] / kCount, 0.0, 5.0 * std::sqrt(15.0) / 1024);
  EXPECT_NEAR(sums[4] / kCount, 3.0, 5.0 * std::sqrt(96.0) / 1024);
  EXPECT_NEAR(beyond_2 / double{kCount}, 0.0455, 0.0011);
  EXPECT_NEAR(beyond_4, 66.4, 41.0);
  EXPECT_LT(std::fabs(normal_from_word(0, 0.0, 1.0)), 6.4F);
  EXPECT_EQ(normal_from_word(0, 0.0, 1.0), -normal_from_word(0xFFFFFFFFU, 0.0, 1.0));
}

TEST(Inputs, HaveTheShapesSizes) {
  const auto inputs = draw_inputs(make_shape("uniform"), 0);
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ(inputs->q.size(), 2U * 4 * 96 * 64);
  EXPECT_EQ(inputs->k.size(), 2U * 2 * 80 * 64);
  EXPECT_EQ(inputs->v.size(), 2U * 2 * 80 * 64);
}

TEST(Inputs, UniformFillsItsRange) {
  Shape shape = make_shape("uniform");
  shape.inputs.low = -3.0;
  shape.inputs.high = 5.0;
  const auto inputs = draw_inputs(shape, 0);
  ASSERT_TRUE(inputs.ok());
  const auto [low, high] = std::minmax_element(inputs->q.begin(), inputs->q.end());
  EXPECT_GE(*low, -3.0F);
  EXPECT_LT(*low, -2.99F);
  EXPECT_LT(*high, 5.0F);
  EXPECT_GT(*high, 4.99F);
}

TEST(Inputs, DependOnSeedAndOperandAlone) {
  const Shape shape = make_shape("normal");
  const auto a = draw_inputs(shape, 1);
  const auto b = draw_inputs(shape, 1);
  const auto c = draw_inputs(shape, 2);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->q, b->q);
  EXPECT_NE(a->q, c->q);
  EXPECT_NE(a->k, a->v);
  // A longer tensor begins with the same elements: element i does not depend on the size.
  Shape longer = shape;
  longer.batch = 3;
  const auto d = draw_inputs(longer, 1);
  ASSERT_TRUE(d.ok());
  EXPECT_TRUE(std::equal(a->v.begin(), a->v.end(), d->v.begin()));
}

// Committed results depend on these bits: they never change, on any platform.
TEST(Inputs, BitsNeverChange) {
  const auto uniform = draw_inputs(make_shape("uniform"), 2026);
  const auto normal = draw_inputs(make_shape("normal"), 2026);
  ASSERT_TRUE(uniform.ok() && normal.ok());
  EXPECT_EQ(hash_of(uniform->q), 0x92bdf58863001044U);
  EXPECT_EQ(hash_of(uniform->v), 0x48aee83c841ae71eU);
  EXPECT_EQ(hash_of(normal->q), 0xfae7ed0ed4c6f7ceU);
  EXPECT_EQ(hash_of(normal->k), 0x3cf41825c0eaed8eU);
}

TEST(Inputs, BitsOfTheFamiliesNeverChange) {
  for (const InputFamily& family : input_families()) {
    const auto inputs = draw_inputs(make_shape(std::string(family.name)), 2026);
    ASSERT_TRUE(inputs.ok());
    const std::uint64_t hash = hash_of(inputs->q) ^ hash_of(inputs->k) * 3 ^ hash_of(inputs->v) * 5;
    EXPECT_EQ(hash, pinned_hash(family.name)) << family.name << " 0x" << std::hex << hash;
  }
}

/// Weights of the first query row of each (batch, heads_q), by the oracle on V = unit vectors.
std::vector<std::vector<double>> weights_of(const Shape& shape, std::uint64_t seed) {
  const auto inputs = draw_inputs(shape, seed);
  EXPECT_TRUE(inputs.ok());
  std::vector<std::vector<double>> all;
  const std::int64_t group = shape.heads_q / shape.heads_kv;
  for (std::int64_t head = 0; head < std::int64_t{shape.batch} * shape.heads_q; ++head) {
    const float* q = &inputs->q[static_cast<std::size_t>(head * shape.seq_q * shape.head_dim)];
    std::vector<double> weights;
    double sum = 0.0;
    for (std::int64_t j = 0; j < shape.seq_kv; ++j) {
      const float* k =
          &inputs->k[static_cast<std::size_t>((head / group * shape.seq_kv + j) * shape.head_dim)];
      double score = 0.0;
      for (int d = 0; d < shape.head_dim; ++d) score += static_cast<double>(q[d]) * k[d];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(shape.head_dim))));
      sum += weights.back();
    }
    for (double& weight : weights) weight /= sum;
    all.push_back(weights);
  }
  return all;
}

TEST(Families, WeightsAreWhereTheySay) {
  std::int64_t head = 0;
  for (const auto& p : weights_of(make_shape("needle"), 7)) {
    EXPECT_GT(p[static_cast<std::size_t>(needle_of(7, head++ / 2, 80))], 0.9);
  }
  for (const auto& p : weights_of(make_shape("sink"), 7)) {
    EXPECT_GT(p[0], 0.8);
    EXPECT_LT(p[0], 0.99) << "something is left for the others";
  }
  for (const auto& p : weights_of(make_shape("one_hot"), 7)) EXPECT_GT(p[0], 1.0 - 1e-9);
  for (const auto& p : weights_of(make_shape("zero_k"), 7)) EXPECT_DOUBLE_EQ(p[3], 1.0 / 80);
  for (const auto& p : weights_of(make_shape("long_tail"), 7)) {
    EXPECT_GT(p[1] / p[0], 0x1p-16);
    EXPECT_LT(p[1] / p[0], 0x1p-10) << "E4M3 without a scale cannot hold it";
  }
  for (const auto& p : weights_of(make_shape("peaked"), 7)) {
    double squares = 0.0;
    for (const double weight : p) squares += weight * weight;
    EXPECT_GT(squares, 1.0 / 16) << "few keys have weight";
  }
}

TEST(Families, ValuesAreWhatTheySay) {
  const auto edges = draw_inputs(make_shape("edges"), 3);
  const QuantisedTensor codes = quantise(edges->v, 4, 80 * 64, Dtype::kE4M3);
  int largest = 0;
  int subnormal = 0;
  for (std::size_t i = 0; i < codes.codes.size(); ++i) {
    const int magnitude = codes.codes[i] & 0x7F;
    EXPECT_TRUE(magnitude == 0x7E || magnitude < 8) << magnitude;
    largest += magnitude == 0x7E ? 1 : 0;
    subnormal += magnitude > 0 && magnitude < 8 ? 1 : 0;
  }
  EXPECT_GT(largest, 5000);
  EXPECT_GT(subnormal, 5000);
  const auto outliers = draw_inputs(make_shape("outliers"), 3);
  int far = 0;
  for (const float x : outliers->q) far += std::fabs(x) > 7.0F ? 1 : 0;
  EXPECT_GT(far, 5);
  EXPECT_LT(far, 100);
  const auto constant = draw_inputs(make_shape("constant_v"), 3);
  EXPECT_EQ(std::count(constant->v.begin(), constant->v.end(), 1.0F),
            static_cast<std::ptrdiff_t>(constant->v.size()));
  const auto biased = draw_inputs(make_shape("v_bias"), 3);
  EXPECT_GT(*std::min_element(biased->v.begin(), biased->v.end()), 0.0F);
}

TEST(Inputs, AnUnknownFamilyIsNamed) {
  const auto inputs = draw_inputs(make_shape("gaussian"), 0);
  ASSERT_FALSE(inputs.ok());
  EXPECT_EQ(inputs.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(inputs.status().message().find("\"gaussian\""), std::string::npos);
  EXPECT_NE(inputs.status().message().find("uniform, normal"), std::string::npos);
}

TEST(Inputs, EveryFamilyOfTheTableIsFound) {
  for (const InputFamily& family : input_families()) {
    ASSERT_NE(find_input_family(family.name), nullptr);
    EXPECT_EQ(find_input_family(family.name)->draw, family.draw);
  }
  EXPECT_EQ(find_input_family(""), nullptr);
}

}  // namespace
}  // namespace fp8_sdpa::reference
