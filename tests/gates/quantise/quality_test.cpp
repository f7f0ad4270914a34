// From bf16, half or float tensors to O and LSE: the library's one call. Rotation and smoothing
// give back what channels with outliers and offsets cost, and O and LSE stay those of the tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp8_sdpa/unquantised.hpp"
#include "reference/formats/half.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"
#include "reference/judge/harness.hpp"
#include "reference/oracle/memory.hpp"
#include "reference/oracle/oracle.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

using reference::Attention;

/// A problem before its quantisation, and how its tensors lie.
struct Asked {
  reference::AttentionSizes sizes{1, 1, 1, 192, 192, 64, Mask::kNone};
  Dtype dtype = Dtype::kBFloat16;
  Dtype output = Dtype::kHalf;
  bool sequence_major = false;
  bool rotate = true;
  bool smooth = true;
  bool wants_lse = true;
  float softmax_scale = 0.0F;
  std::uint64_t seed = 0;
  Granularity granularity = Granularity::kBlock;
  Precision precision = Precision::kFp8;
  PlanOptions plan_options = {};
  bool in_place = false;  ///< O where Q lies, of the same format

  reference::Extent rows() const {
    return {sizes.batch, sizes.heads_q, sizes.seq_q, sizes.head_dim, sequence_major, 8};
  }
  reference::Extent keys() const {
    return {sizes.batch, sizes.heads_kv, sizes.seq_kv, sizes.head_dim, sequence_major, 8};
  }
  double scale() const {
    return softmax_scale > 0.0F ? softmax_scale : 1.0 / std::sqrt(sizes.head_dim);
  }
};

/// Q, K and V, contiguous, of what the dtype holds.
struct Inputs {
  std::vector<float> q, k, v;
};

float as(Dtype dtype, float x) {
  return dtype == Dtype::kFloat ? x : reference::decode_16(reference::encode_16(x, dtype), dtype);
}

/// Unit normals; `edit` changes an element of Q, K or V (0, 1, 2): which, column, value.
template <class Edit>
Inputs inputs(const Asked& asked, const Edit& edit) {
  const auto draw = [&](int which, const reference::Extent& extent) {
    const reference::PhiloxStream stream(77, static_cast<std::uint64_t>(which));
    std::vector<float> values(extent.contiguous_elements());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float x = reference::normal_from_word(stream.word(i), 0.0, 1.0);
      values[i] = as(asked.dtype, edit(which, static_cast<int>(i % asked.sizes.head_dim), x));
    }
    return values;
  };
  return {draw(0, asked.rows()), draw(1, asked.keys()), draw(2, asked.keys())};
}
Inputs inputs(const Asked& asked) {
  return inputs(asked, [](int, int, float x) { return x; });
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(error / norm);
}
double largest_difference(const std::vector<float>& got, const std::vector<float>& want) {
  double most = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] != want[i]) most = std::max(most, std::fabs(double{got[i]} - want[i]));
  }
  return most;
}

class QuantisedAttention : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }

  using Memory = std::unique_ptr<reference::Buffer>;
  Memory buffer(std::size_t bytes, const void* contents = nullptr) {
    auto made = reference::allocate(device_, bytes, "buffer");
    EXPECT_TRUE(made.ok()) << made.status().message();
    expect_ok(contents != nullptr ? (*made)->upload(contents) : (*made)->poison());
    return std::move(*made);
  }
  Memory buffer(const Asked& asked, const reference::Extent& extent,
                const std::vector<float>& values) {
    if (asked.dtype == Dtype::kFloat) {
      const auto memory = extent.scatter(values);
      return buffer(memory.size() * sizeof memory[0], memory.data());
    }
    std::vector<std::uint16_t> bits;
    for (const float x : values) bits.push_back(reference::encode_16(x, asked.dtype));
    const auto memory = extent.scatter(bits);
    return buffer(memory.size() * sizeof memory[0], memory.data());
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  /// What the call writes, twice: the same bits, and nothing else.
  Attention run(const Asked& asked, const Inputs& in) {
    const Memory q = buffer(asked, asked.rows(), in.q);
    const Memory k = buffer(asked, asked.keys(), in.k);
    const Memory v = buffer(asked, asked.keys(), in.v);
    const Memory o = buffer(asked.rows().elements() * sizeof(std::uint16_t));
    const std::size_t rows = asked.rows().contiguous_elements() / asked.sizes.head_dim;
    const Memory lse = buffer(rows * sizeof(float));
    UnquantisedProblem problem;
    Problem& p = problem.attention;
    p.batch = asked.sizes.batch;
    p.heads_q = asked.sizes.heads_q;
    p.heads_kv = asked.sizes.heads_kv;
    p.seq_q = asked.sizes.seq_q;
    p.seq_kv = asked.sizes.seq_kv;
    p.head_dim = asked.sizes.head_dim;
    p.mask = asked.sizes.mask;
    p.q = asked.rows().view(q->data(), asked.dtype);
    p.k = asked.keys().view(k->data(), asked.dtype);
    p.v = asked.keys().view(v->data(), asked.dtype);
    const Memory& out = asked.in_place ? q : o;
    p.o = asked.rows().view(out->data(), asked.output);
    if (asked.wants_lse) p.lse = static_cast<float*>(lse->data());
    p.softmax_scale = asked.softmax_scale;
    problem.rotate = asked.rotate;
    problem.seed = asked.seed;
    problem.smooth = asked.smooth;
    problem.granularity = asked.granularity;
    problem.precision = asked.precision;
    const auto made = plan(problem, device_, nullptr, asked.plan_options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (!made.ok()) return {};
    const Memory workspace = buffer(made->workspace_bytes());
    std::vector<std::uint16_t> bits[2];
    Attention answer;
    for (auto& run : bits) {
      if (asked.in_place && &run != &bits[0]) break;  // Q is gone
      expect_ok(o->poison());
      expect_ok(workspace->poison());  // what an earlier run has left is nobody's
      expect_ok(forward(*made, workspace->data(), nullptr));
      expect_ok(reference::synchronise(device_));
      run.resize(asked.rows().elements());
      expect_ok(out->download(run.data()));
    }
    if (!asked.in_place) {
      EXPECT_EQ(bits[0], bits[1]);
    }
    for (const Memory* memory : {&q, &k, &v, &o, &lse, &workspace}) {
      const auto changed = (*memory)->changed_guard_bytes();
      EXPECT_TRUE(changed.ok() && *changed == 0);
    }
    for (const std::uint16_t x : asked.rows().gather(bits[0])) {
      answer.o.push_back(reference::decode_16(x, asked.output));
    }
    answer.lse.resize(rows);
    expect_ok(lse->download(answer.lse.data()));
    return answer;
  }

  /// Of O relative to its norm, and of the worst row's LSE.
  struct Error {
    double o = 0.0;
    double lse = 0.0;
  };
  Error error_of(const Asked& asked, const Inputs& in) {
    const Attention want = reference::attention_fp64(in.q, in.k, in.v, asked.sizes, asked.scale());
    const Attention got = run(asked, in);
    if (HasFailure()) return {INFINITY, INFINITY};
    return {relative_error(got.o, want.o),
            asked.wants_lse ? largest_difference(got.lse, want.lse) : 0.0};
  }
  Error error_of(bool rotate, bool smooth, const Inputs& in) {
    Asked asked;
    asked.rotate = rotate;
    asked.smooth = smooth;
    return error_of(asked, in);
  }

  /// Whether this build and device have a kernel for it with Precision::kInt8.
  bool has_int8(const Asked& asked) const {
    const Dtype values = asked.dtype == Dtype::kBFloat16 ? Dtype::kBFloat16 : Dtype::kHalf;
    const auto kernels = all_kernels();
    return (device_.sm_version == 90 || device_.backend == Backend::kHost) &&
           std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
             return kernel.variant->int8 && kernel.variant->weights == values &&
                    kernel.head_dim == asked.sizes.head_dim;
           });
  }

  Device device_;
  bool ready_ = false;
};

TEST_P(QuantisedAttention, OptionsLeaveOrdinaryTensorsAsGoodAsTheyWere) {
  if (!ready_) return;
  const Inputs in = inputs({});
  const Error plain = error_of(false, false, in);
  EXPECT_LT(plain.o, 0.08);
  for (const bool rotate : {false, true}) {
    for (const bool smooth : {false, true}) {
      const Error error = error_of(rotate, smooth, in);
      EXPECT_LT(error.o, 1.15 * plain.o) << rotate << smooth;
      EXPECT_LT(error.lse, 0.1) << rotate << smooth;
    }
  }
}

// FlashAttention-3's outliers, arXiv 2407.08608, section 4.3, but one in a hundred values.
TEST_P(QuantisedAttention, RotationSpreadsOutliers) {
  if (!ready_) return;
  int nth = 0;
  const Inputs in =
      inputs({}, [&](int, int, float x) { return nth++ % 101 == 50 ? 10.0F * x : x; });
  EXPECT_LT(error_of(true, false, in).o, 0.8 * error_of(false, false, in).o);
}

// Offsets of K's channels weigh on every key of a row alike.
TEST_P(QuantisedAttention, SmoothingTakesOffsetsOff) {
  if (!ready_) return;
  const Inputs in = inputs({}, [](int which, int column, float x) {
    return which == 1 ? x + 4.0F * static_cast<float>(column % 7 - 3) : x;
  });
  const Error plain = error_of(false, false, in);
  for (const bool rotate : {false, true}) {
    const Error error = error_of(rotate, true, in);
    EXPECT_LT(error.o, 0.6 * plain.o) << rotate;
    EXPECT_LT(error.lse, plain.lse) << rotate;
  }
}

// Batches, KV heads that are shared, masks, layouts and formats: each (batch, head) has inputs, an
// offset of K and scales of its own.
TEST_P(QuantisedAttention, ServesEveryKindOfProblem) {
  if (!ready_) return;
  int turn = 0;
  for (const auto& sizes : {reference::AttentionSizes{2, 2, 2, 130, 200, 64, Mask::kNone},
                            reference::AttentionSizes{2, 6, 2, 70, 190, 64, Mask::kCausal},
                            reference::AttentionSizes{1, 4, 1, 33, 260, 128, Mask::kCausal},
                            reference::AttentionSizes{2, 3, 3, 40, 150, 256, Mask::kNone},
                            // Rows that see no key.
                            reference::AttentionSizes{1, 2, 1, 190, 140, 128, Mask::kCausal}}) {
    // What the ladder serves, elsewhere than on sm_90 and the host executor.
    if (device_.sm_version != 90 && device_.backend == Backend::kDevice && turn > 0) break;
    for (const auto& [dtype, precision] : {std::pair{Dtype::kBFloat16, Precision::kFp8},
                                           {Dtype::kHalf, Precision::kFp8},
                                           {Dtype::kFloat, Precision::kFp8},
                                           {Dtype::kHalf, Precision::kInt8},
                                           {Dtype::kBFloat16, Precision::kInt8}}) {
      Asked asked{sizes, dtype};
      if (precision == Precision::kInt8 && !has_int8(asked)) continue;
      asked.precision = precision;
      asked.output = ++turn % 2 != 0 ? Dtype::kBFloat16 : Dtype::kHalf;
      asked.sequence_major = turn % 3 == 0;
      asked.rotate = turn % 4 != 0;
      asked.smooth = turn % 5 != 0;
      asked.wants_lse = turn % 6 != 5;
      asked.seed = static_cast<std::uint64_t>(turn);
      if (turn % 7 < 3) asked.granularity = Granularity::kHead;
      if (turn % 3 == 1) asked.softmax_scale = 0.1F;
      const std::size_t head = static_cast<std::size_t>(sizes.seq_kv * sizes.head_dim);
      std::size_t nth = 0;
      const Inputs in = inputs(asked, [&](int which, int column, float x) {
        if (which != 1) return x;
        const auto of_head = static_cast<float>(nth++ / head);
        return x * (1.0F + 0.25F * of_head) + 0.5F * (of_head - static_cast<float>(column % 3));
      });
      // Rounding to E4M3 is 2.6 % rms of a value, so a score of two is off by 3.7 % of what scores
      // of independent rows are, rms, of the head with the largest keys; a row's LSE by no more
      // than its worst scores, at 4 sigma. To 127 steps of a largest value of 5 sigma or less 1.1
      // %, and 1.6 %.
      double squares = 0.0;  // the last head's
      for (std::size_t i = in.k.size() - head; i < in.k.size(); ++i) squares += in.k[i] * in.k[i];
      const bool int8 = precision == Precision::kInt8;
      const double score_error = (int8 ? 0.016 : 0.037) * asked.scale() *
                                 std::sqrt(squares / static_cast<double>(sizes.seq_kv));
      const Error error = error_of(asked, in);
      EXPECT_LT(error.o, int8 ? 0.03 : 0.11) << "turn " << turn;
      EXPECT_LT(error.lse, 4.0 * score_error) << "turn " << turn;
    }
  }
}

// Ordinary tensors, outliers of a channel and offsets of keys alike.
TEST_P(QuantisedAttention, IsSeveralTimesMoreExactInInt8) {
  Asked asked{{1, 2, 2, 200, 700, 64, Mask::kNone}, Dtype::kHalf};
  if (!ready_ || !has_int8(asked)) return;
  int nth = 0;
  const Inputs in = inputs(asked, [&](int which, int column, float x) {
    if (which < 2 && nth++ % 1001 == 50) x *= 10.0F;
    return which == 1 ? x + 2.0F * static_cast<float>(column % 5 - 2) : x;
  });
  const Error fp8 = error_of(asked, in);
  asked.precision = Precision::kInt8;
  const Error int8 = error_of(asked, in);
  EXPECT_LT(int8.o, 0.4 * fp8.o);
  EXPECT_LT(int8.o, 0.02);
  EXPECT_LT(int8.lse, 0.4 * fp8.lse);
}

// NaN of a head is in all of its rows, and in no other head's.
TEST_P(QuantisedAttention, TellsOfNanInInt8) {
  Asked asked{{1, 3, 3, 40, 150, 64, Mask::kNone}, Dtype::kHalf};
  if (!ready_ || !has_int8(asked)) return;
  asked.precision = Precision::kInt8;
  const Inputs clean = inputs(asked);
  for (const int which : {0, 1, 2}) {
    Inputs in = clean;
    std::vector<float>& tensor = which == 0 ? in.q : which == 1 ? in.k : in.v;
    tensor[tensor.size() / 3 + 17] = NAN;
    const Attention got = run(asked, in);
    ASSERT_FALSE(HasFailure());
    const std::size_t head = got.o.size() / 3;
    for (std::size_t i = 0; i < got.o.size(); ++i) {
      const bool hurt = i / head == 1 && (which < 2 || i % 64 == 17);
      ASSERT_EQ(std::isnan(got.o[i]), hurt) << "tensor " << which << ", element " << i;
    }
  }
}

// More keys than a slab adds up itself: each query head's mean is that of its KV head's keys.
TEST_P(QuantisedAttention, GivesTheLseOfManyKeysInBlocks) {
  if (!ready_ || device_.sm_version != 90) return;
  const Asked asked{{2, 4, 2, 150, 600, 64, Mask::kNone}};
  std::size_t nth = 0;
  const Inputs in = inputs(asked, [&](int which, int column, float x) {
    if (which != 1) return x;
    const auto of_head = static_cast<float>(nth++ / (std::size_t{600} * 64));
    return x + 2.0F * (of_head - static_cast<float>(column % 3));
  });
  EXPECT_LT(error_of(asked, in).lse, 0.3);
}

TEST_P(QuantisedAttention, MayWriteOWhereQLies) {
  if (!ready_) return;
  Asked asked;
  asked.output = asked.dtype;
  const Inputs in = inputs(asked);
  const Attention apart = run(asked, in);
  asked.in_place = true;
  const Attention in_place = run(asked, in);
  EXPECT_EQ(in_place.o, apart.o);
  EXPECT_EQ(in_place.lse, apart.lse);
}

// A batch more changes no bit of a row, though blocks would share rows in each case.
TEST_P(QuantisedAttention, MayBeBatchInvariant) {
  if (!ready_ || device_.sm_version != 90) return;
  Asked asked;
  asked.plan_options.batch_invariant = true;
  asked.sizes = {2, 3, 3, 300, 1100, 128, Mask::kNone};
  const Inputs all = inputs(asked);
  const Attention together = run(asked, all);
  asked.sizes.batch = 1;
  Inputs first = all;
  first.q.resize(first.q.size() / 2);
  first.k.resize(first.k.size() / 2);
  first.v.resize(first.v.size() / 2);
  const Attention alone = run(asked, first);
  ASSERT_FALSE(HasFailure());
  EXPECT_TRUE(std::equal(alone.o.begin(), alone.o.end(), together.o.begin()));
  EXPECT_TRUE(std::equal(alone.lse.begin(), alone.lse.end(), together.lse.begin()));
}

INSTANTIATE_TEST_SUITE_P(Gates, QuantisedAttention,
                         testing::Values(Backend::kHost, Backend::kDevice),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace fp8_sdpa::tests
