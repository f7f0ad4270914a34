// Cases judged by some of their rows: that slices are the whole's rows, and what is seen of a wrong
// kernel.
#include "reference/judge/sampled.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "dispatch/variant_impl.hpp"
#include "reference/formats/half.hpp"
#include "tests/host/reference/tolerances.hpp"

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

TEST(Sampled, AsManyRowsOfEveryHeadAsAreAskedFor) {
  Shape shape = made_shape(16384, 16384, Mask::kNone);
  const std::int64_t scores_of_row = std::int64_t{4} * 16384;
  const auto rows_at = [&](std::int64_t max_scores) {
    std::int64_t rows = 0;
    for (const RowRange& range : sample_rows_of(shape, max_scores)) rows += range.rows;
    return rows;
  };
  EXPECT_EQ(rows_at(scores_of_row * 16384), 16384);       // all
  EXPECT_EQ(rows_at(scores_of_row * 16384 - 1), 8 * 32);  // no more than that
  EXPECT_EQ(rows_at(scores_of_row * 80), 80);
  EXPECT_EQ(rows_at(1), 8);  // no fewer
  const auto few = sample_rows_of(shape, 1);
  EXPECT_EQ(few.front().first, 0);
  EXPECT_EQ(few.back().first, 16383);
}

/// Rows [range.first, range.first + range.rows) of each of `heads` matrices of `rows` rows.
template <class T>
std::vector<T> cut(const std::vector<T>& values, std::int64_t heads, std::int64_t rows,
                   std::int64_t columns, const RowRange& range) {
  std::vector<T> taken;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto first = values.begin() + (head * rows + range.first) * columns;
    taken.insert(taken.end(), first, first + range.rows * columns);
  }
  return taken;
}

/// One range of a case the long way: a case of those rows and of the keys that the last of them
/// sees, so that a mask, aligned bottom-right, hides the same keys.
std::shared_ptr<const CaseData> case_of_range(const CaseData& whole, const RowRange& range) {
  const Shape& shape = whole.shape;
  const RowRange keys{0, visible_keys(sizes_of(shape), range.first + range.rows - 1)};
  CaseData part = whole;
  part.shape.seq_q = range.rows;
  part.shape.seq_kv = keys.rows;
  const auto cut_all = [&](auto of_q, auto of_k, auto of_v) {
    return std::tuple(cut(of_q, 4, shape.seq_q, 16, range), cut(of_k, 2, shape.seq_kv, 16, keys),
                      cut(of_v, 2, shape.seq_kv, 16, keys));
  };
  std::tie(part.inputs.q, part.inputs.k, part.inputs.v) =
      cut_all(whole.inputs.q, whole.inputs.k, whole.inputs.v);
  std::tie(part.q.codes, part.k.codes, part.v.codes) =
      cut_all(whole.q.codes, whole.k.codes, whole.v.codes);
  return with_references(std::move(part));
}

/// References and budgets of a sample are those of its ranges' own cases, to the last bit.
TEST(Sampled, SamplesAreRowsOfTheWhole) {
  const std::vector<RowRange> ranges = {{0, 5}, {11, 8}, {33, 7}};
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    const CaseData whole = draw_case(made_shape(40, 57, mask), 3);
    const Sample sample = take_sample(whole, ranges);
    const CaseData& rows = *sample.rows;
    ASSERT_EQ(rows.shape.seq_q, 20);
    RowRange in_sample;
    for (const RowRange& range : ranges) {
      in_sample.rows = range.rows;
      const auto part = case_of_range(whole, range);
      EXPECT_EQ(cut(rows.reference_kernel.o, 4, 20, 16, in_sample), part->reference_kernel.o);
      EXPECT_EQ(cut(rows.reference_kernel.lse, 4, 20, 1, in_sample), part->reference_kernel.lse);
      EXPECT_EQ(cut(rows.reference_quantised.o, 4, 20, 16, in_sample), part->reference_quantised.o);
      for (const bool fp8_p : {false, true}) {
        const ModelOptions model = model_of(fp8_p, Dtype::kBFloat16);
        const auto got = budget_of(rows, model, in_sample);
        const auto want = budget_of(*part, model);
        EXPECT_EQ(got->row, want->row);
        EXPECT_EQ(got->head, want->head);
        EXPECT_EQ(got->tensor, want->tensor);
      }
      in_sample.first += range.rows;
    }
  }
}

TEST(Sampled, AllRowsAreTheWholeCase) {
  const Shape shape = made_shape(40, 57, Mask::kCausal);
  const auto whole = make_case(shape, 3);
  const Sample sample = take_sample(draw_case(shape, 3), sample_rows(40));
  EXPECT_EQ(sample.rows->reference_kernel.o, whole->reference_kernel.o);
  EXPECT_EQ(sample.rows->reference_quantised.o, whole->reference_quantised.o);
  EXPECT_EQ(sample.rows->max_abs_v, whole->max_abs_v);
  EXPECT_EQ(sample.rows->score_bound, whole->score_bound);
}

Shape sampled_shape() { return made_shape(600, 600, Mask::kCausal); }

/// The oracle's output for sampled_shape(), whatever is asked, with one row changed.
template <int kRow, std::uint16_t kBits>
Status oracle_but_for_a_row(const Problem& p, const gpu::Queue&) {
  static const std::vector<float> right = make_case(sampled_shape(), 3)->reference_kernel.o;
  auto* o = static_cast<std::uint16_t*>(p.o.data);
  for (std::size_t i = 0; i < right.size(); ++i) o[i] = encode_16(right[i], p.o.dtype);
  if (kRow >= 0) std::fill_n(o + kRow * p.head_dim, p.head_dim, kBits);
  return {};
}

Status takes_all(const Problem&, const Device&) { return {}; }

template <int kRow, std::uint16_t kBits = 0>
Result<CaseResult> checked() {
  const detail::VariantImpl impl{takes_all, {}, {oracle_but_for_a_row<kRow, kBits>}};
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
  EXPECT_EQ(judged["budget_row"], 1);
  EXPECT_EQ(judged["budget_head"], 1);
  EXPECT_EQ(judged["rel_l2"], 1);
  EXPECT_EQ(judged["kernel_rel_l2"], 1);
}

TEST(Sampled, AWrongRowOfTheSampleIsNamed) {
  const auto result = checked<600 + 250>();  // of the second head; rows 243 to 275 are sampled
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(result->pass);
  EXPECT_NE(result->failure().find("rows 243 to 275: "), std::string::npos) << result->failure();
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
