// Cases judged by some of their rows: that slices are the whole's rows, and what is seen of a wrong
// kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "reference/half.hpp"
#include "reference/sampled.hpp"
#include "tests/host/tolerances.hpp"
#include "variant_impl.hpp"

namespace fp8_sdpa::reference {
namespace {

Shape made_shape(std::int64_t seq_q, std::int64_t seq_kv, Mask mask) {
  Shape shape;
  shape.name = "made_up";
  shape.batch = 2;
  shape.heads_q = 2;
  shape.heads_kv = 1;
  shape.seq_q = seq_q;
  shape.seq_kv = seq_kv;
  shape.head_dim = 16;
  shape.mask = mask;
  shape.inputs.family = "normal";
  return shape;
}

TEST(Sampled, RowsAreSpreadFromTheFirstToTheLast) {
  for (const std::int64_t seq : {513, 2048, 16384}) {
    const auto ranges = sample_rows(seq);
    ASSERT_EQ(ranges.size(), 8U);
    EXPECT_EQ(ranges.front().first, 0);
    EXPECT_EQ(ranges.back().first + ranges.back().rows, seq);
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      EXPECT_GE(ranges[i].first, ranges[i - 1].first + ranges[i - 1].rows);
    }
  }
  const auto all = sample_rows(512);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.front().rows, 512);
}

TEST(Sampled, SlicesAreRowsOfTheWhole) {
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    const Shape shape = made_shape(40, 57, mask);
    const auto whole = make_case(shape, 3);
    for (const RowRange range : {RowRange{0, 5}, RowRange{11, 8}, RowRange{33, 7}}) {
      const auto part = slice(draw_case(shape, 3), range);
      ASSERT_EQ(part->reference_kernel.lse.size(), static_cast<std::size_t>(4 * range.rows));
      for (std::int64_t head = 0; head < 4; ++head) {
        for (std::int64_t row = 0; row < range.rows; ++row) {
          const auto at = static_cast<std::size_t>(head * 40 + range.first + row);
          const auto in_part = static_cast<std::size_t>(head * range.rows + row);
          EXPECT_EQ(part->reference_kernel.lse[in_part], whole->reference_kernel.lse[at]);
          for (std::size_t d = 0; d < 16; ++d) {
            EXPECT_EQ(part->reference_kernel.o[in_part * 16 + d],
                      whole->reference_kernel.o[at * 16 + d]);
            EXPECT_EQ(part->reference_quantised.o[in_part * 16 + d],
                      whole->reference_quantised.o[at * 16 + d]);
          }
        }
      }
    }
  }
}

Shape sampled_shape() {
  return made_shape(600, 600, Mask::kCausal);
}

/// The oracle's output for sampled_shape(), whatever is asked, with one row changed.
template <int kRow, std::uint16_t kBits>
Status oracle_but_for_a_row(const Problem& p, const gpu::Queue&) {
  static const std::vector<float> right = make_case(sampled_shape(), 3)->reference_kernel.o;
  auto* o = static_cast<std::uint16_t*>(p.o.data);
  for (std::size_t i = 0; i < right.size(); ++i) o[i] = encode_16(right[i], p.o.dtype);
  if (kRow >= 0) std::fill_n(o + kRow * p.head_dim, p.head_dim, kBits);
  return {};
}

Status serves_all(const Problem&, const Device&) {
  return {};
}

template <int kRow, std::uint16_t kBits = 0>
Result<CaseResult> checked() {
  const detail::VariantImpl impl{serves_all, {}, {oracle_but_for_a_row<kRow, kBits>}};
  Variant variant{};
  variant.name = "made_up";
  variant.impl = &impl;
  return check_sampled(variant, draw_case(sampled_shape(), 3), host_executor(), kTolerances,
                       {.output = Dtype::kBFloat16, .lse = false});
}

TEST(Sampled, ARightKernelPasses) {
  const auto result = checked<-1>();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(result->pass) << result->failure();
  EXPECT_EQ(result->output.size(), 4U * 600U * 16U);
  std::map<std::string, int> judged;
  for (const GateResult& gate : result->gates) ++judged[gate.name];
  EXPECT_EQ(judged["budget_row"], 8);
  EXPECT_EQ(judged["rel_l2"], 1);
  EXPECT_EQ(judged["kernel_rel_l2"], 1);
}

TEST(Sampled, AWrongRowOfTheSampleIsNamed) {
  const auto result = checked<600 + 250>();  // of the second head; rows 243 to 275 are sampled
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(result->pass);
  EXPECT_NE(result->failure().find("made_up rows 243 to 275: "), std::string::npos)
      << result->failure();
}

TEST(Sampled, NaNAnywhereIsSeen) {
  constexpr std::uint16_t kNan = 0x7FC0;    // bf16
  const auto result = checked<40, kNan>();  // not sampled
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(result->pass);
  EXPECT_EQ(result->failure(), "gate finite: 16 elements of O are NaN or infinite; no input is");
}

}  // namespace
}  // namespace fp8_sdpa::reference
