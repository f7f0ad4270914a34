// Descales of blocks of rows (Granularity::kBlock), of kernels that serve them; with descales of
// heads these kernels go through all other gates too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "dispatch/variant_impl.hpp"
#include "reference/judge/harness.hpp"
#include "tests/gates/subject.hpp"

namespace fp8_sdpa::tests {
namespace {

using reference::CaseData;
using reference::RunOutput;

struct Sizes {
  int batch, heads_q, heads_kv;
  std::int64_t seq_q, seq_kv;
  Mask mask;
};

class BlockScales : public VariantTest {
 protected:
  static CaseData codes(const Sizes& sizes, int head_dim) {
    reference::Shape shape =
        make_shape(sizes.batch, sizes.heads_q, sizes.seq_q, sizes.seq_kv, head_dim);
    shape.heads_kv = sizes.heads_kv;
    shape.mask = sizes.mask;
    shape.inputs.family = "normal";
    return codes_of(shape, 61);
  }
  RunOutput run(const CaseData& data, const PlanOptions& options = {}) const {
    const auto harness = reference::Harness::make(data, device_, {});
    EXPECT_TRUE(harness.ok()) << harness.status().message();
    const auto planned = plan((*harness)->problem(), device_, &variant(), options);
    EXPECT_TRUE(planned.ok()) << planned.status().message();
    auto output = (*harness)->run(*planned);
    EXPECT_TRUE(output.ok()) << output.status().message();
    return *output;
  }
  std::int64_t many_keys() const { return device_.backend == Backend::kHost ? 1100 : 11000; }
};

std::vector<const Variant*> variants_of_blocks() {
  std::vector<const Variant*> chosen;
  for (const Variant* variant : all_variants()) {
    if (variant->impl->serves_blocks) chosen.push_back(variant);
  }
  return chosen;
}

// Whole and partial blocks of queries and of keys; tiles that several blocks share; grouped heads.
TEST_P(BlockScales, EachBlockHasItsOwn) {
  if (!ready_) return;
  const std::vector<Sizes> all = {
      {1, 2, 2, 129, 129, Mask::kNone},       {2, 4, 2, 200, 333, Mask::kNone},
      {1, 2, 1, 300, 520, Mask::kCausal},     {1, 1, 1, 500, 200, Mask::kCausal},
      {1, 3, 3, 5, many_keys(), Mask::kNone}, {1, 1, 1, 300, many_keys(), Mask::kCausal}};
  for (const int head_dim : head_dims()) {
    for (const Sizes& sizes : all) {
      SCOPED_TRACE(testing::Message() << sizes.seq_q << " x " << sizes.seq_kv << " x " << head_dim);
      CaseData data = codes(sizes, head_dim);
      vary_block_descales(data);
      reference::CheckOptions options;
      options.budgets_only = true;
      expect_pass(variant(), *reference::from_codes(std::move(data)), device_, options);
    }
  }
}

// A power of two as the descale of each of a head's blocks is the head's, bit by bit.
TEST_P(BlockScales, EqualBlocksAreTheHead) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    CaseData head = codes({1, 2, 1, 200, many_keys(), Mask::kCausal}, head_dim);
    for (auto* tensor : {&head.q, &head.k, &head.v}) {
      for (std::size_t i = 0; i < tensor->descales.size(); ++i) {
        tensor->descales[i] = std::ldexp(1.0F, -5 - static_cast<int>(i));
      }
    }
    CaseData blocks = head;
    blocks.q = reference::in_blocks(head.q, std::int64_t{kQueriesOfBlock} * head_dim);
    blocks.k = reference::in_blocks(head.k, std::int64_t{kKeysOfBlock} * head_dim);
    blocks.v = reference::in_blocks(head.v, std::int64_t{kKeysOfBlock} * head_dim);
    for (const bool invariant : {false, true}) {
      const PlanOptions options{.batch_invariant = invariant};
      EXPECT_TRUE(run(blocks, options) == run(head, options)) << head_dim;
    }
  }
}

// A descale of K or V that is not positive, or not finite, makes NaN of O's rows that see its
// block, K's of their LSE too, and of none whose tile sees no key of it.
TEST_P(BlockScales, WhatIsNoDescaleIsSeen) {
  if (!ready_) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kSeq = 1024;
  constexpr std::int64_t kBlock = 6;
  for (const int head_dim : head_dims()) {
    CaseData data = codes({1, 1, 1, kSeq, kSeq, Mask::kCausal}, head_dim);
    vary_block_descales(data);
    const RunOutput clean = run(data);
    for (const bool of_values : {false, true}) {
      for (const float bad : {0.0F, -1.0F, kInfinity, std::nanf("")}) {
        SCOPED_TRACE(testing::Message() << (of_values ? "V " : "K ") << bad << " x " << head_dim);
        CaseData hurt = data;
        (of_values ? hurt.v : hurt.k).descales[kBlock] = bad;
        const RunOutput got = run(hurt);
        for (std::int64_t row = 0; row < kSeq; ++row) {
          const auto at = static_cast<std::size_t>(row);
          const std::uint16_t o = got.o[at * static_cast<std::size_t>(head_dim)];
          if (row >= (kBlock + 1) * kKeysOfBlock) {
            EXPECT_TRUE(of_values || std::isnan(got.lse[at])) << row;
            EXPECT_GT(o & 0x7FFF, 0x7C00) << row;
          } else if (row < kBlock * kKeysOfBlock / kQueriesOfBlock * kQueriesOfBlock) {
            EXPECT_EQ(got.lse[at], clean.lse[at]) << row;
            EXPECT_EQ(o, clean.o[at * static_cast<std::size_t>(head_dim)]) << row;
          }
        }
      }
    }
  }
}

// Descales of V that are far apart: what a block of small values adds is not lost in the units of a
// block of large ones, nor the other way round.
TEST_P(BlockScales, ValuesOfAllMagnitudes) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    CaseData data = codes({1, 1, 1, 64, 640, Mask::kNone}, head_dim);
    vary_block_descales(data);
    int exponent = -50;
    for (float& descale : data.v.descales) descale = std::ldexp(1.0F, exponent += 17);
    reference::CheckOptions options;
    options.budgets_only = true;
    options.output = Dtype::kBFloat16;
    expect_pass(variant(), *reference::from_codes(data), device_, options);
    std::swap(data.v.descales.front(), data.v.descales.back());
    expect_pass(variant(), *reference::from_codes(data), device_, options);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BlockScales);  // a build of some kernels alone
INSTANTIATE_TEST_SUITE_P(Gates, BlockScales,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(variants_of_blocks())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
