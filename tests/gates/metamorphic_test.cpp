// Metamorphic tests: how outputs of related problems are related, each with the condition that
// makes the relation exact. Asked of every variant, of the oracle and of the model; what a subject
// does not serve yet must be a known decline.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "gpu/executor_options.hpp"
#include "reference/formats/half.hpp"
#include "reference/judge/budget.hpp"
#include "tests/gates/subject.hpp"

namespace fp8_sdpa::tests {
namespace {

using reference::CaseData;
using reference::RunOutput;

constexpr std::uint8_t kNanCode = 0x7F;  // E4M3

class Metamorphic : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override { ready_ = GetParam().prepare(&device_); }

  /// Inputs that make a difference, at the subject's head dim.
  reference::Shape grouped_shape(int batch, int heads_q, int heads_kv, std::int64_t seq_q,
                                 std::int64_t seq_kv, Mask mask = Mask::kNone) const {
    reference::Shape shape = make_shape(batch, heads_q, seq_q, seq_kv, GetParam().kernel.head_dim);
    shape.heads_kv = heads_kv;
    shape.mask = mask;
    shape.inputs.family = "normal";
    return shape;
  }
  static std::int64_t keys(std::int64_t few) { return GetParam().kernel.keys(few); }
  static auto codes() { return GetParam().kernel.codes(); }

  /// The subject's output; empty, and nothing to compare, where it declines by a known reason.
  RunOutput run(const CaseData& data, Dtype output = Dtype::kBFloat16,
                const PlanOptions& options = {}) const {
    const auto result = GetParam().run(data, device_, output, options);
    if (result.ok()) return *result;
    EXPECT_TRUE(is_known_decline(result.status())) << result.status().message();
    return {};
  }

  bool ready_ = false;
  Device device_;
  const std::int64_t dim_ = GetParam().kernel.head_dim;
};

/// Codes of each value times `factor`, a power of two; exact where nothing over- or underflows.
void scale_codes(reference::QuantisedTensor& tensor, float factor) {
  const auto& table = reference::decode_table(tensor.dtype);
  for (std::uint8_t& code : tensor.codes) {
    code = reference::encode_code(table[code] * factor, tensor.dtype);
  }
}

void permute_heads(reference::QuantisedTensor& tensor, const std::vector<std::int64_t>& order) {
  const auto per_head = static_cast<std::int64_t>(tensor.codes.size() / tensor.descales.size());
  tensor.codes = permuted(tensor.codes, order, per_head);
  tensor.descales = permuted(tensor.descales, order, 1);
}

std::vector<float> decoded(const std::vector<std::uint16_t>& bits, Dtype dtype) {
  std::vector<float> values;
  for (const std::uint16_t code : bits) values.push_back(reference::decode_16(code, dtype));
  return values;
}

// The order of the keys is no part of the problem without a mask. Sums are taken in another order,
// so: within the budget of the unpermuted problem.
TEST_P(Metamorphic, PermutedKeysStayWithinTheBudget) {
  if (!ready_) return;
  const std::int64_t n = keys(101);
  const auto original = reference::make_case(grouped_shape(1, 2, 2, 40, n), 31, codes());
  CaseData data = *original;
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 2 * n; ++i) order.push_back(i / n * n + (i % n * 77 + 5) % n);
  data.k.codes = permuted(data.k.codes, order, dim_);
  data.v.codes = permuted(data.v.codes, order, dim_);
  const RunOutput output = run(data, Dtype::kHalf);
  if (output.o.empty()) return;
  const auto budget = budget_of(*original, reference::model_of(GetParam().weights, Dtype::kHalf));
  for (const auto& gate : judge_budget(decoded(output.o, Dtype::kHalf),
                                       original->reference_kernel.o, original->shape, *budget)) {
    EXPECT_TRUE(gate.pass) << gate.name << ": " << gate.detail;
  }
}

/// Keys [first, first + count) of every head.
reference::QuantisedTensor keys_of(const reference::QuantisedTensor& all, std::int64_t first,
                                   std::int64_t count, std::int64_t dim) {
  reference::QuantisedTensor part = all;
  part.codes.clear();
  const auto heads = static_cast<std::int64_t>(all.descales.size());
  const auto per_head = static_cast<std::int64_t>(all.codes.size()) / heads;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto from = all.codes.begin() + head * per_head + first * dim;
    part.codes.insert(part.codes.end(), from, from + count * dim);
  }
  return part;
}

// Who splits the keys, over devices or chunks, merges O and LSE: within the budget of the whole.
TEST_P(Metamorphic, PartsOfTheKeysMergeToTheWhole) {
  if (!ready_) return;
  constexpr std::int64_t kRows = 40;
  const std::int64_t counts[] = {keys(37), keys(101)};
  const auto whole =
      reference::make_case(grouped_shape(1, 2, 2, kRows, counts[0] + counts[1]), 41, codes());
  RunOutput parts[2];
  for (int i = 0; i < 2; ++i) {
    CaseData data = *whole;
    data.shape.seq_kv = counts[i];
    for (auto* tensor : {&data.k, &data.v}) {
      *tensor = keys_of(*tensor, i * counts[0], counts[i], dim_);
    }
    parts[i] = run(data, Dtype::kHalf);
    if (parts[i].o.empty()) return;
  }
  std::vector<float> o;
  std::vector<float> lse;
  for (std::size_t row = 0; row < parts[0].lse.size(); ++row) {
    const double max = std::max(parts[0].lse[row], parts[1].lse[row]);
    const double weights[] = {std::exp(parts[0].lse[row] - max), std::exp(parts[1].lse[row] - max)};
    const double sum = weights[0] + weights[1];
    lse.push_back(static_cast<float>(max + std::log(sum)));
    for (std::size_t d = 0; d < static_cast<std::size_t>(dim_); ++d) {
      double value = 0.0;
      for (int i = 0; i < 2; ++i) {
        const auto bits = parts[i].o[row * static_cast<std::size_t>(dim_) + d];
        value += weights[i] / sum * reference::decode_16(bits, Dtype::kHalf);
      }
      o.push_back(static_cast<float>(value));
    }
  }
  const auto budget = budget_of(*whole, reference::model_of(GetParam().weights, Dtype::kHalf));
  auto gates = judge_budget(o, whole->reference_kernel.o, whole->shape, *budget);
  if (GetParam().fp8_p()) {
    for (auto& gate : judge_lse_budget(lse, whole->reference_kernel.lse, whole->shape, *budget)) {
      gates.push_back(std::move(gate));
    }
  }
  for (const auto& gate : gates) EXPECT_TRUE(gate.pass) << gate.name << ": " << gate.detail;
}

// A group of query heads with its KV head, its scales along, is a problem of its own: its place
// among the others changes no bit.
TEST_P(Metamorphic, PermutedGroupsAndBatchesPermuteTheOutput) {
  if (!ready_) return;
  for (const int group : {1, 3}) {
    CaseData data = codes_of(grouped_shape(2, 2 * group, 2, 37, keys(70)), 32, codes());
    vary_descales(data);
    const RunOutput before = run(data);
    const std::vector<std::int64_t> kv_order = {2, 0, 3, 1};
    std::vector<std::int64_t> q_order;
    for (const std::int64_t kv : kv_order) {
      for (int g = 0; g < group; ++g) q_order.push_back(kv * group + g);
    }
    permute_heads(data.q, q_order);
    permute_heads(data.k, kv_order);
    permute_heads(data.v, kv_order);
    const RunOutput after = run(data);
    if (before.o.empty()) continue;
    EXPECT_EQ(after.o, permuted(before.o, q_order, 37 * dim_)) << group;
    EXPECT_EQ(after.lse, permuted(before.lse, q_order, 37)) << group;
  }
}

// A head's output does not depend on the heads beside it, if the plan promises that.
TEST_P(Metamorphic, AHeadAloneGivesTheBitsThatItGivesAmongOthers) {
  if (!ready_) return;
  CaseData all = codes_of(grouped_shape(2, 3, 3, 33, keys(97)), 33, codes());
  vary_descales(all);
  const PlanOptions invariant{.batch_invariant = true};
  const RunOutput among = run(all, Dtype::kBFloat16, invariant);
  if (among.o.empty()) return;
  for (const int head : {0, 4, 5}) {
    CaseData alone = all;
    alone.shape.batch = alone.shape.heads_q = alone.shape.heads_kv = 1;
    for (auto* tensor : {&alone.q, &alone.k, &alone.v}) {
      const auto size = tensor->codes.size() / tensor->descales.size();
      const auto first = tensor->codes.begin() + static_cast<std::ptrdiff_t>(head * size);
      tensor->codes.assign(first, first + static_cast<std::ptrdiff_t>(size));
      tensor->descales = {tensor->descales[static_cast<std::size_t>(head)]};
    }
    const RunOutput output = run(alone, Dtype::kBFloat16, invariant);
    EXPECT_TRUE(std::equal(output.o.begin(), output.o.end(), among.o.begin() + head * 33 * dim_))
        << "head " << head;
  }
}

// Products and sums of V's codes double exactly while nothing over- or underflows, whatever the
// accumulator's width, and bf16 has fp32's exponents.
TEST_P(Metamorphic, DoublingTheCodesOfVDoublesTheOutput) {
  if (!ready_) return;
  CaseData data = codes_of(grouped_shape(1, 2, 2, 40, keys(90)), 34, codes());
  scale_codes(data.v, 0.25F);  // room above
  const RunOutput before = run(data);
  scale_codes(data.v, 2.0F);
  const RunOutput after = run(data);
  ASSERT_EQ(before.o.size(), after.o.size());
  for (std::size_t i = 0; i < after.o.size(); ++i) {
    const float doubled = 2.0F * reference::decode_16(before.o[i], Dtype::kBFloat16);
    ASSERT_EQ(after.o[i], reference::encode_16(doubled, Dtype::kBFloat16)) << i;
  }
  EXPECT_EQ(after.lse, before.lse);
}

// (2 q) . (k / 2) has the products of q . k: with |q| <= 224 and k exactly halvable nothing
// changes.
TEST_P(Metamorphic, DoublingQAndHalvingKChangesNoBit) {
  if (!ready_) return;
  CaseData data = codes_of(grouped_shape(1, 2, 2, 40, keys(90)), 35, codes());
  scale_codes(data.q, 0.25F);
  scale_codes(data.k, 0.25F);
  CaseData other = data;
  scale_codes(data.k, 2.0F);  // halvable: it was just doubled
  scale_codes(other.q, 2.0F);
  EXPECT_EQ(run(other), run(data));
}

// Scales of a head belong to that head alone. Powers of two move no rounding: V's scales its output
// exactly; a factor moved from Q's to K's changes nothing.
TEST_P(Metamorphic, ScalesBelongToTheirOwnHead) {
  if (!ready_) return;
  CaseData data = codes_of(grouped_shape(2, 2, 2, 35, keys(66)), 36, codes());
  vary_descales(data);
  const RunOutput before = run(data);
  if (before.o.empty()) return;
  for (std::size_t head = 0; head < 4; ++head) {
    CaseData other = data;
    other.v.descales[head] *= 4.0F;
    other.q.descales[head] *= 2.0F;
    other.k.descales[head] *= 0.5F;
    const RunOutput after = run(other);
    ASSERT_EQ(after.o.size(), before.o.size());
    for (std::size_t i = 0; i < before.o.size(); ++i) {
      const bool here = i / (35 * dim_) == head;
      const float want = (here ? 4.0F : 1.0F) * reference::decode_16(before.o[i], Dtype::kBFloat16);
      ASSERT_EQ(after.o[i], reference::encode_16(want, Dtype::kBFloat16))
          << "head " << head << ", element " << i;
    }
    EXPECT_EQ(after.lse, before.lse) << head;
  }
}

// Causal: a row sees keys up to its own place; at fixed scales what comes later is not there.
TEST_P(Metamorphic, FutureKeysDoNotReachEarlierRows) {
  if (!ready_) return;
  const std::int64_t seq = keys(100);
  const std::int64_t changed = seq / 3;
  const CaseData data = codes_of(grouped_shape(1, 2, 1, seq, seq, Mask::kCausal), 37, codes());
  const RunOutput before = run(data);
  CaseData other = data;
  for (std::int64_t i = changed * dim_; i < seq * dim_; ++i) {
    other.k.codes[static_cast<std::size_t>(i)] ^= 0x9BU;
    other.v.codes[static_cast<std::size_t>(i)] ^= 0x82U;
  }
  for (auto* tensor : {&other.k, &other.v}) {
    if (tensor->dtype == Dtype::kInt8) continue;  // without NaN
    for (std::uint8_t& code : tensor->codes) code = (code & 0x7FU) == kNanCode ? 0x10U : code;
  }
  const RunOutput after = run(other);
  if (before.o.empty()) return;
  std::int64_t differ = 0;
  for (std::int64_t row = 0; row < 2 * seq; ++row) {
    const auto at = before.o.begin() + row * dim_;
    const bool equal = std::equal(at, at + dim_, after.o.begin() + row * dim_);
    EXPECT_TRUE(equal || row % seq >= changed) << "row " << row;
    differ += equal ? 0 : 1;
  }
  EXPECT_GT(differ, seq) << "the change reaches later rows";
}

/// NaN as an element; of signed bytes, which have none, as the descale of its head.
void hurt(reference::QuantisedTensor& tensor, std::size_t element) {
  if (tensor.dtype == Dtype::kInt8) {
    tensor.descales[tensor.descale_of(element)] = std::nanf("");
  } else {
    tensor.codes[element] = kNanCode;
  }
}

// NaN in what a row attends to makes it NaN, and reaches nobody else.
TEST_P(Metamorphic, AttendedNanReachesItsRowsAndNoOthers) {
  if (!ready_) return;
  constexpr std::int64_t kRows = 40;
  const std::int64_t n = keys(101);
  const CaseData data = codes_of(grouped_shape(1, 2, 2, kRows, n), 38, codes());
  const RunOutput clean = run(data);
  if (clean.o.empty()) return;
  const auto expect_nan = [&](const CaseData& with_nan, const auto& is_nan, const char* what) {
    const std::vector<float> o = decoded(run(with_nan).o, Dtype::kBFloat16);
    const std::vector<float> before = decoded(clean.o, Dtype::kBFloat16);
    ASSERT_EQ(o.size(), before.size());
    for (std::int64_t i = 0; i < 2 * kRows * dim_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t row = i / dim_;
      if (is_nan(row / kRows, row % kRows, i % dim_)) {
        ASSERT_TRUE(std::isnan(o[at])) << what << ": element " << i << " is " << o[at];
      } else {
        ASSERT_EQ(o[at], before[at]) << what << ": element " << i;
      }
    }
  };
  // Where shared memory starts as NaN, and as zeros: none may come from what a kernel forgot to
  // write.
  for (const bool poison : {true, false}) {
    device_.executor =
        std::make_shared<const ExecutorOptions>(ExecutorOptions{.poison_shared_memory = poison});
    for (const std::int64_t key : {std::int64_t{0}, std::int64_t{77}, n - 1}) {
      const auto element = static_cast<std::size_t>((n + key) * dim_ + 13);  // of head 1
      CaseData in_k = data;
      hurt(in_k.k, element);
      expect_nan(
          in_k, [](auto head, auto, auto) { return head == 1; }, "K");
      CaseData in_v = data;
      in_v.v.codes[element] = kNanCode | 0x80U;
      expect_nan(
          in_v, [](auto head, auto, auto dim) { return head == 1 && dim == 13; }, "V");
    }
    CaseData in_q = data;
    hurt(in_q.q, static_cast<std::size_t>((kRows + 33) * dim_ + 60));
    const bool whole = in_q.q.dtype == Dtype::kInt8;
    expect_nan(
        in_q, [&](auto head, auto row, auto) { return head == 1 && (whole || row == 33); }, "Q");
  }
}

// Masked keys never reach a row: K's NaN nowhere, V's where whole tiles are masked (a weight of 0
// times NaN is NaN inside a tile, and no kernel is asked to look). The first NaN is at a border of
// tiles of 64, 96 and 128 keys, and of rows of a warpgroup, so that one tile too many shows.
TEST_P(Metamorphic, MaskedNanNeverReachesTheOutput) {
  if (!ready_) return;
  constexpr std::int64_t kSeq = 512;
  constexpr std::int64_t kFirstNan = 384;
  const CaseData data = codes_of(grouped_shape(1, 1, 1, kSeq, kSeq, Mask::kCausal), 39, codes());
  const RunOutput clean = run(data);
  if (clean.o.empty()) return;
  const auto check = [&](const CaseData& with_nan, const char* what) {
    const RunOutput output = run(with_nan);
    for (std::int64_t row = 0; row < kFirstNan; ++row) {
      const auto at = clean.o.begin() + row * dim_;
      ASSERT_TRUE(std::equal(at, at + dim_, output.o.begin() + row * dim_))
          << what << ", row " << row;
    }
    EXPECT_TRUE(std::isnan(reference::decode_16(output.o.back(), Dtype::kBFloat16))) << what;
  };
  if (data.k.dtype != Dtype::kInt8) {  // which has no NaN
    CaseData in_k = data;
    std::fill(in_k.k.codes.begin() + kFirstNan * dim_, in_k.k.codes.end(), kNanCode);
    check(in_k, "K");
  }
  CaseData in_v = data;
  std::fill(in_v.v.codes.begin() + kFirstNan * dim_, in_v.v.codes.end(), kNanCode);
  check(in_v, "V");
}

// A row that sees no key: O = 0, LSE = -inf, whatever the keys are.
TEST_P(Metamorphic, RowsWithoutKeysAreZero) {
  if (!ready_) return;
  constexpr std::int64_t kWithoutKeys = 50;
  const std::int64_t rows = keys(20) + kWithoutKeys;
  CaseData data = codes_of(grouped_shape(1, 2, 2, rows, keys(20), Mask::kCausal), 40, codes());
  for (const bool poison : {false, true}) {
    SCOPED_TRACE(poison ? "NaN in K and V" : "numbers");
    if (poison) {
      std::fill(data.k.codes.begin(), data.k.codes.end(), kNanCode);
      std::fill(data.v.codes.begin(), data.v.codes.end(), kNanCode);
    }
    const RunOutput output = run(data);
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(output.o.size()) / dim_; ++row) {
      if (row % rows >= kWithoutKeys) continue;
      EXPECT_EQ(output.lse[static_cast<std::size_t>(row)], -std::numeric_limits<float>::infinity());
      for (std::int64_t d = 0; d < dim_; ++d) {
        ASSERT_EQ(output.o[static_cast<std::size_t>(row * dim_ + d)], 0) << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Metamorphic, testing::ValuesIn(all_subjects()),
                         [](const testing::TestParamInfo<Subject>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace fp8_sdpa::tests
