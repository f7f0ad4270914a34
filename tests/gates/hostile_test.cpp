// The API under hostile arguments: whatever stands in a Problem, plan() answers with a Status in
// one line, and touches nothing. A problem that is accepted has nothing wrong with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "fp8_sdpa/plan.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

constexpr int kBatch = 2;
constexpr int kHeads = 2;
constexpr int kSeq = 32;
constexpr int kDim = 64;
constexpr std::size_t kElements = std::size_t{kBatch} * kHeads * kSeq * kDim;
constexpr std::uint8_t kUntouched = 0x5A;

/// Memory of a valid problem, one region behind the other.
class Memory {
 public:
  Memory() : bytes_(kRegion * 9, kUntouched) {}

  void* region(std::size_t i) { return bytes_.data() + offset_ + i * kRegion; }
  bool untouched() const {
    return std::all_of(bytes_.begin(), bytes_.end(),
                       [](std::uint8_t byte) { return byte == kUntouched; });
  }

  Problem problem() {
    const auto tensor = [&](std::size_t i, Dtype dtype) {
      return Tensor{region(i), dtype, kHeads * kSeq * kDim, kSeq * kDim, kDim, 1};
    };
    Problem p;
    p.batch = kBatch;
    p.heads_q = p.heads_kv = kHeads;
    p.seq_q = p.seq_kv = kSeq;
    p.head_dim = kDim;
    p.q = tensor(0, Dtype::kE4M3);
    p.k = tensor(1, Dtype::kE4M3);
    p.v = tensor(2, Dtype::kE4M3);
    p.o = tensor(3, Dtype::kHalf);
    p.lse = static_cast<float*>(region(4));
    p.descales = {static_cast<const float*>(region(5)), static_cast<const float*>(region(6)),
                  static_cast<const float*>(region(7))};
    p.softmax_scale = 0.125F;
    return p;
  }

 private:
  static constexpr std::size_t kRegion = kElements * 2;
  std::vector<std::uint8_t> bytes_;
  std::size_t offset_ = (16 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 16) % 16;
};

/// Puts something else into one field.
void spoil(Problem& p, Memory& memory, std::mt19937_64& random) {
  constexpr std::array<std::int64_t, 12> kNumbers = {
      0, -1, 1, 15, 17, -16, INT_MAX, INT_MIN, std::int64_t{1} << 40, 24, 128, INT64_MAX};
  const std::int64_t number = kNumbers[random() % kNumbers.size()];
  Tensor* tensors[] = {&p.q, &p.k, &p.v, &p.o};
  Tensor& tensor = *tensors[random() % 4];
  const std::array<const float**, 3> scales = {&p.descales.q, &p.descales.k, &p.descales.v};
  void* const elsewhere = static_cast<char*>(memory.region(random() % 8)) + random() % 3 * 8;
  switch (random() % 14) {
    case 0: p.batch = static_cast<int>(number); break;
    case 1: p.heads_q = static_cast<int>(number); break;
    case 2: p.heads_kv = static_cast<int>(number); break;
    case 3: p.seq_q = number; break;
    case 4: p.seq_kv = number; break;
    case 5: p.head_dim = static_cast<int>(number); break;
    case 6: tensor.data = random() % 2 == 0 ? nullptr : elsewhere; break;
    case 7: tensor.dtype = static_cast<Dtype>(random() % 6); break;
    case 8: tensor.stride_batch = number; break;
    case 9: tensor.stride_head = number; break;
    case 10: tensor.stride_seq = number; break;
    case 11:
      *scales[random() % 3] = random() % 2 == 0 ? nullptr : static_cast<float*>(elsewhere);
      break;
    case 12: p.lse = static_cast<float*>(elsewhere); break;
    default: {
      constexpr float kScales[] = {0.0F, -1.0F, INFINITY, NAN, 1e-38F};
      p.softmax_scale = kScales[random() % std::size(kScales)];
    }
  }
}

/// What every accepted problem has.
void expect_sound(const Problem& p) {
  EXPECT_GT(p.batch, 0);
  EXPECT_GT(p.heads_kv, 0);
  EXPECT_GT(p.seq_q, 0);
  EXPECT_GT(p.seq_kv, 0);
  EXPECT_EQ(p.heads_q % p.heads_kv, 0);
  EXPECT_GE(p.softmax_scale, 0.0F);
  EXPECT_TRUE(std::isfinite(p.softmax_scale));
  for (const Tensor* tensor : {&p.q, &p.k, &p.v, &p.o}) {
    ASSERT_NE(tensor->data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data) % 16, 0U);
    EXPECT_TRUE(p.seq_q == 1 || p.seq_kv == 1 ||
                tensor->stride_seq * size_of(tensor->dtype) % 16 == 0);
  }
  for (const float* scale : {p.descales.q, p.descales.k, p.descales.v}) EXPECT_NE(scale, nullptr);
  EXPECT_TRUE(is_fp8(p.q.dtype) && is_fp8(p.k.dtype) && is_fp8(p.v.dtype));
  EXPECT_FALSE(is_fp8(p.o.dtype));
  for (const void* input : {p.q.data, p.k.data, p.v.data}) EXPECT_NE(input, p.o.data);
  for (const float* scale : {p.descales.q, p.descales.k, p.descales.v}) {
    EXPECT_NE(static_cast<const void*>(scale), p.o.data) << "o would overwrite a descale";
    EXPECT_NE(scale, p.lse) << "lse would overwrite a descale";
  }
}

TEST(Hostile, EveryPlanOfASpoiledProblemIsAnAnswer) {
  Memory memory;
  std::mt19937_64 random(20260101);
  int declined = 0;
  constexpr int kProblems = 20000;
  for (int i = 0; i < kProblems; ++i) {
    Problem problem = memory.problem();
    for (std::uint64_t spoils = 1 + random() % 3; spoils > 0; --spoils) {
      spoil(problem, memory, random);
    }
    const Variant& variant = variants()[random() % variants().size()];
    const auto planned = plan(problem, host_executor(), &variant);
    if (planned.ok()) {
      expect_sound(problem);
    } else {
      ++declined;
      EXPECT_TRUE(planned.status().code() == StatusCode::kInvalidArgument ||
                  planned.status().code() == StatusCode::kUnsupported);
      EXPECT_FALSE(planned.status().message().empty());
      EXPECT_EQ(planned.status().message().find('\n'), std::string::npos);
    }
    ASSERT_FALSE(HasFailure()) << "problem " << i << " of " << variant.name;
  }
  EXPECT_GT(declined, kProblems / 2);
  EXPECT_TRUE(memory.untouched());
}

// Outputs in the memory of the scales: a kernel would change its own inputs.
TEST(Hostile, OutputsMayNotOverlapDescales) {
  Memory memory;
  for (const auto member : {&Descales::q, &Descales::k, &Descales::v}) {
    Problem problem = memory.problem();
    problem.descales.*member = static_cast<const float*>(problem.o.data) + 4;
    EXPECT_EQ(plan(problem, host_executor()).status().code(), StatusCode::kInvalidArgument);
    problem = memory.problem();
    problem.descales.*member = problem.lse + 1;
    EXPECT_EQ(plan(problem, host_executor()).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace fp8_sdpa::tests
