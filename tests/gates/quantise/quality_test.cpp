// From bf16 tensors to O through the quantiser and the attention kernel: rotation and smoothing
// give back what channels with outliers and offsets cost, and O and LSE stay those of the tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"
#include "reference/oracle/memory.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

constexpr int kSeq = 192;
constexpr int kDim = 64;
constexpr std::size_t kElements = std::size_t{kSeq} * kDim;
constexpr double kScale = 0.125;

/// Values that bf16 holds.
using Values = std::vector<double>;

struct Inputs {
  Values q, k, v;
};

/// Unit normals; `edit` changes one of Q, K (0, 1) in place: which, column, value.
template <class Edit>
Inputs inputs(const Edit& edit) {
  const auto draw = [&](int which) {
    const reference::PhiloxStream stream(77, static_cast<std::uint64_t>(which));
    Values values(kElements);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float x = reference::normal_from_word(stream.word(i), 0.0, 1.0);
      const auto edited = static_cast<float>(edit(which, static_cast<int>(i % kDim), x));
      values[i] =
          reference::decode_16(reference::encode_16(edited, Dtype::kBFloat16), Dtype::kBFloat16);
    }
    return values;
  };
  return {draw(0), draw(1), draw(2)};
}

struct Answer {
  Values o, lse;
};

/// Softmax attention in double.
Answer attention(const Inputs& in) {
  Answer answer{Values(kElements), Values(kSeq)};
  for (int i = 0; i < kSeq; ++i) {
    Values weight(kSeq);
    double max = -INFINITY;
    for (int j = 0; j < kSeq; ++j) {
      for (int c = 0; c < kDim; ++c) weight[j] += kScale * in.q[i * kDim + c] * in.k[j * kDim + c];
      max = std::max(max, weight[j]);
    }
    double sum = 0.0;
    for (double& w : weight) sum += w = std::exp(w - max);
    for (int j = 0; j < kSeq; ++j) {
      for (int c = 0; c < kDim; ++c) {
        answer.o[i * kDim + c] += weight[j] / sum * in.v[j * kDim + c];
      }
    }
    answer.lse[i] = max + std::log(sum);
  }
  return answer;
}

double relative_error(const Values& got, const Values& want) {
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

class QuantisedAttention : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }

  std::unique_ptr<reference::Buffer> buffer(std::size_t bytes, const void* contents = nullptr) {
    auto made = reference::allocate(device_, bytes, "buffer");
    EXPECT_TRUE(made.ok()) << made.status().message();
    expect_ok(contents != nullptr ? (*made)->upload(contents) : (*made)->poison());
    return std::move(*made);
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
  static Tensor view(const reference::Buffer& memory, Dtype dtype) {
    return {memory.data(), dtype, kElements, kElements, kDim, 1};
  }

  struct Fp8 {
    std::unique_ptr<reference::Buffer> codes, descale, mean;
    Tensor tensor;
    const float* scale() const { return static_cast<const float*>(descale->data()); }
  };
  Fp8 quantised(const Values& values, bool rotate, bool smooth) {
    std::vector<std::uint16_t> bits;
    for (const double x : values) {
      bits.push_back(reference::encode_16(static_cast<float>(x), Dtype::kBFloat16));
    }
    const auto from = buffer(bits.size() * sizeof bits[0], bits.data());
    Fp8 out{buffer(kElements), buffer(sizeof(float)), buffer(kDim * sizeof(float)), {}};
    out.tensor = view(*out.codes, Dtype::kE4M3);
    Quantisation q;
    q.batch = q.heads = 1;
    q.seq = kSeq;
    q.head_dim = kDim;
    q.from = view(*from, Dtype::kBFloat16);
    q.codes = out.tensor;
    q.descales = static_cast<float*>(out.descale->data());
    q.mean = static_cast<float*>(out.mean->data());
    q.rotate = rotate;
    q.smooth = smooth;
    const auto made = plan(q, device_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    const auto workspace = buffer(made->workspace_bytes());
    expect_ok(quantise(*made, workspace->data(), nullptr));
    expect_ok(reference::synchronise(device_));
    return out;
  }

  /// O and LSE of the FP8 path; the LSE with what smoothing takes off put back.
  Answer fp8_attention(const Inputs& in, bool rotate, bool smooth) {
    const Fp8 q = quantised(in.q, rotate, false);
    const Fp8 k = quantised(in.k, rotate, smooth);
    const Fp8 v = quantised(in.v, false, false);
    const auto o = buffer(kElements * 2);
    const auto lse = buffer(kSeq * sizeof(float));
    Problem p;
    p.batch = p.heads_q = p.heads_kv = 1;
    p.seq_q = p.seq_kv = kSeq;
    p.head_dim = kDim;
    p.q = q.tensor;
    p.k = k.tensor;
    p.v = v.tensor;
    p.o = view(*o, Dtype::kHalf);
    p.lse = static_cast<float*>(lse->data());
    p.descales = {q.scale(), k.scale(), v.scale()};
    const auto made = plan(p, device_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    auto workspace = reference::Workspace::make(*made);
    EXPECT_TRUE(workspace.ok());
    expect_ok(forward(*made, workspace->data(), nullptr));
    expect_ok(reference::synchronise(device_));

    std::vector<std::uint16_t> bits(kElements);
    std::vector<float> sums(kSeq);
    std::vector<float> mean(kDim);
    expect_ok(o->download(bits.data()));
    expect_ok(lse->download(sums.data()));
    expect_ok(k.mean->download(mean.data()));
    Answer answer;
    for (const std::uint16_t x : bits) answer.o.push_back(reference::decode_16(x, Dtype::kHalf));
    const Values query = rotate ? reference::rotate(in.q, kDim, 0) : in.q;
    for (int i = 0; i < kSeq; ++i) {
      double taken_off = 0.0;
      for (int c = 0; smooth && c < kDim; ++c) taken_off += kScale * query[i * kDim + c] * mean[c];
      answer.lse.push_back(sums[static_cast<std::size_t>(i)] + taken_off);
    }
    return answer;
  }

  /// Of the FP8 path: of O relative to its norm, and of the worst row's LSE.
  struct Error {
    double o = 0.0;
    double lse = 0.0;
  };
  Error error_of(const Inputs& in, bool rotate, bool smooth) {
    const Answer want = attention(in);
    const Answer got = fp8_attention(in, rotate, smooth);
    Error error{relative_error(got.o, want.o)};
    for (int i = 0; i < kSeq; ++i) {
      error.lse = std::max(error.lse, std::fabs(got.lse[i] - want.lse[i]));
    }
    return error;
  }

  Device device_;
  bool ready_ = false;
};

TEST_P(QuantisedAttention, OptionsLeaveOrdinaryTensorsAsGoodAsTheyWere) {
  if (!ready_) return;
  const Inputs in = inputs([](int, int, float x) { return x; });
  const Error plain = error_of(in, false, false);
  EXPECT_LT(plain.o, 0.08);
  for (const bool rotate : {false, true}) {
    for (const bool smooth : {false, true}) {
      const Error error = error_of(in, rotate, smooth);
      EXPECT_LT(error.o, 1.15 * plain.o) << rotate << smooth;
      EXPECT_LT(error.lse, 0.1) << rotate << smooth;
    }
  }
}

// FlashAttention-3's outliers, arXiv 2407.08608, section 4.3, but one in a hundred values.
TEST_P(QuantisedAttention, RotationSpreadsOutliers) {
  if (!ready_) return;
  int nth = 0;
  const Inputs in = inputs([&](int, int, float x) { return nth++ % 101 == 50 ? 10.0F * x : x; });
  EXPECT_LT(error_of(in, true, false).o, 0.8 * error_of(in, false, false).o);
}

// Offsets of K's channels weigh on every key of a row alike.
TEST_P(QuantisedAttention, SmoothingTakesOffsetsOff) {
  if (!ready_) return;
  const Inputs in = inputs(
      [](int which, int column, float x) { return which == 1 ? x + 4.0F * (column % 7 - 3) : x; });
  const Error plain = error_of(in, false, false);
  for (const bool rotate : {false, true}) {
    const Error error = error_of(in, rotate, true);
    EXPECT_LT(error.o, 0.6 * plain.o) << rotate;
    EXPECT_LT(error.lse, plain.lse) << rotate;
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, QuantisedAttention,
                         testing::Values(Backend::kHost, Backend::kDevice),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace fp8_sdpa::tests
