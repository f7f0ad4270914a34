// The limits that every problem has, from both sides: the last that is legal, the first that is
// not.
#include "dispatch/check_problem.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>

#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::tests {
namespace {

void expect_legal(const Problem& p, bool legal) {
  const Status status = detail::check_problem(p);
  EXPECT_EQ(status.ok(), legal) << status.message();
}

TEST(CheckProblem, SequencesUpTo2To40) {
  constexpr std::int64_t kMost = 1'099'511'627'776;
  expect_legal(made_up(1, 1, 1, kMost, 3, 64), true);
  expect_legal(made_up(1, 1, 1, 3, kMost, 64), true);
  expect_legal(made_up(1, 1, 1, kMost + 1, 3, 64), false);
  expect_legal(made_up(1, 1, 1, 3, kMost + 1, 64), false);
}

TEST(CheckProblem, HeadDimsUpTo256) {
  expect_legal(made_up(1, 1, 1, 1, 1, 256), true);
  expect_legal(made_up(1, 1, 1, 1, 1, 257), false);
}

// Each axis of each tensor: below 2^60 elements, and not looked at where it has one element.
TEST(CheckProblem, StridesUpTo2To60OverTheSize) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 60) - 1;
  for (const int tensor : {0, 1, 2, 3, 4}) {  // 4: v, transposed
    for (const int axis : {0, 1, 2}) {
      for (const bool alone : {false, true}) {
        SCOPED_TRACE(testing::Message() << tensor << " " << axis << " " << alone);
        const bool transposed = tensor == 4;
        std::array<std::int64_t, 3> sizes = {2, 3, 17};  // 2^60 / 17 is just above a multiple of 16
        if (alone) sizes[static_cast<std::size_t>(axis)] = 1;
        const int heads = static_cast<int>(sizes[1]);
        Problem p = made_up(static_cast<int>(sizes[0]), heads, heads, sizes[2], sizes[2], 64);
        Tensor& t = *std::array{&p.q, &p.k, &p.v, &p.o, &p.v}[static_cast<std::size_t>(tensor)];
        if (transposed) std::tie(t.stride_seq, t.stride_dim) = std::pair{1, 32};
        if (transposed && axis == 2 && alone) continue;  // the unit stride
        std::int64_t& stride =
            *std::array{&t.stride_batch, &t.stride_head,
                        transposed ? &t.stride_dim : &t.stride_seq}[static_cast<std::size_t>(axis)];
        const std::int64_t size =
            transposed && axis == 2 ? p.head_dim : sizes[static_cast<std::size_t>(axis)];
        const std::int64_t step = tensor == kOutput ? 8 : 16;
        move_to(p, transposed ? 2 : tensor, std::uintptr_t{1} << 62);
        stride = kMost / size / step * step;
        expect_legal(p, true);
        for (const std::int64_t bad : {stride + step, stride - 1, -step, INT64_MAX}) {
          stride = bad;
          expect_legal(p, alone);
        }
      }
    }
  }
}

TEST(CheckProblem, OneKeyWithStrideOneIsRowMajor) {
  Problem p = made_up(1, 2, 2, 5, 1, 64);
  p.v.stride_seq = 1;
  expect_legal(p, true);
  p.v.stride_dim = 16;
  expect_legal(p, true);
  p.v.stride_seq = 16;  // transposed, and its unit stride is another
  expect_legal(p, false);
}

TEST(CheckProblem, PointersAreThereAndAligned) {
  for (int which = 0; which < kFault; ++which) {
    const std::uintptr_t alignment = which <= kOutput ? 16 : 4;
    for (const std::uintptr_t shift : {1, 2, 4, 8, 12, 16, 20}) {
      SCOPED_TRACE(testing::Message() << which << " " << shift);
      Problem p = made_up(2, 2, 2, 32, 32, 64);
      move_to(p, which, address(p, which) + shift);
      expect_legal(p, shift % alignment == 0);
    }
    Problem p = made_up(2, 2, 2, 32, 32, 64);
    move_to(p, which, 0);
    expect_legal(p, which == kLse);
  }
}

// What is written beside anything else: touching is legal, sharing a step is not.
TEST(CheckProblem, TouchingIsLegalAndSharingIsNot) {
  using Sizes = std::tuple<int, int, int, int, int>;
  for (const auto& [batch, heads_q, heads_kv, seq_q, seq_kv] :
       {Sizes{1, 1, 1, 32, 32}, Sizes{1, 2, 2, 5, 1}, Sizes{2, 1, 1, 1, 7}, Sizes{3, 2, 2, 32, 32},
        Sizes{3, 4, 2, 5, 1}, Sizes{2, 6, 3, 1, 7}}) {
    const std::uintptr_t q_heads = static_cast<std::uintptr_t>(batch) * heads_q;
    const std::uintptr_t kv_heads = static_cast<std::uintptr_t>(batch) * heads_kv;
    const std::uintptr_t q = q_heads * seq_q * 64, kv = kv_heads * seq_kv * 64;
    const std::uintptr_t bytes[kFault] = {
        q, kv, kv, 2 * q, q_heads * seq_q * 4, 4 * q_heads, 4 * kv_heads, 4 * kv_heads};
    for (const int written : {kOutput, kLse}) {
      for (int other = 0; other < kFault; ++other) {
        if (other == written) continue;
        // The one with the smaller alignment is moved.
        const int moved = written == kLse ? written : other;
        const int stays = moved == written ? other : written;
        const std::uintptr_t step = moved <= kOutput ? 16 : 4;
        for (const std::uintptr_t shared : {std::uintptr_t{0}, step}) {
          SCOPED_TRACE(testing::Message()
                       << batch << "x" << heads_q << "/" << heads_kv << "x" << seq_q << "x"
                       << seq_kv << ": " << written << " and " << other << " share " << shared);
          Problem p = made_up(batch, heads_q, heads_kv, seq_q, seq_kv, 64);
          move_to(p, moved, address(p, stays) + bytes[stays] - shared);
          expect_legal(p, shared == 0);
          move_to(p, moved, address(p, stays) - bytes[moved] + shared);
          expect_legal(p, shared == 0);
        }
      }
    }
  }
}

// One byte of a tensor is shared, or two.
TEST(CheckProblem, TensorsOfOneElementAreRanges) {
  for (const int tensor : {0, 1, 2, kOutput}) {
    Problem p = made_up(1, 1, 1, 1, 1, 1);
    expect_legal(p, true);
    move_to(p, kLse, address(p, tensor));
    expect_legal(p, false);
  }
}

TEST(CheckProblem, InputsMayBeBroadcastAndOutputsNot) {
  for (const auto member : {&Problem::q, &Problem::k, &Problem::v, &Problem::o}) {
    for (const auto stride : {&Tensor::stride_batch, &Tensor::stride_head, &Tensor::stride_seq}) {
      Problem p = made_up(2, 2, 2, 2, 2, 64);
      p.*member.*stride = 0;
      expect_legal(p, member != &Problem::o);
    }
  }
}

// O in every order of its axes, with a gap between its rows or none: spans touch, or are a step
// closer.
TEST(CheckProblem, AxesOfOutputsNest) {
  using Order = std::array<std::int64_t Tensor::*, 3>;
  constexpr auto kBatch = &Tensor::stride_batch, kHead = &Tensor::stride_head,
                 kSeq = &Tensor::stride_seq;
  for (const Order& order :
       {Order{kBatch, kHead, kSeq}, Order{kBatch, kSeq, kHead}, Order{kHead, kBatch, kSeq},
        Order{kHead, kSeq, kBatch}, Order{kSeq, kBatch, kHead}, Order{kSeq, kHead, kBatch}}) {
    for (const std::int64_t gap : {0, 8}) {
      for (int closer = gap == 0 ? 0 : 1; closer <= 3; ++closer) {
        Problem p = made_up(2, 2, 2, 2, 32, 64);
        std::int64_t span = 64;
        for (int i = 0; i < 3; ++i) {
          std::int64_t& stride = p.o.*order[static_cast<std::size_t>(i)];
          stride = span + (i == 0 ? gap : 0) - (i == closer ? 8 : 0);
          span += stride;
        }
        SCOPED_TRACE(testing::Message()
                     << p.o.stride_batch << " " << p.o.stride_head << " " << p.o.stride_seq);
        expect_legal(p, closer == 3);
      }
    }
  }
}

// Five descales of Q and three of K and of V, of which the last is the last that is read.
TEST(CheckProblem, DescalesOfBlocksAreReadToTheirEnd) {
  Problem p = made_up(1, 1, 1, 300, 300, 64);
  p.descales.granularity = Granularity::kBlock;
  const auto fault_at = [&](const float* descales, int which) {
    Problem with_fault = p;
    with_fault.fault = reinterpret_cast<std::uint32_t*>(const_cast<float*>(descales)) + which;
    return detail::check_problem(with_fault);
  };
  for (const auto& [name, descales, count] :
       {std::tuple{"q", p.descales.q, 5}, {"k", p.descales.k, 3}, {"v", p.descales.v, 3}}) {
    EXPECT_EQ(fault_at(descales, count - 1).message(),
              std::string("fault overlaps descales.") + name + "; it needs memory of its own");
    EXPECT_TRUE(fault_at(descales, count).ok()) << name;
  }
  p.descales.granularity = static_cast<Granularity>(2);
  EXPECT_EQ(detail::check_problem(p).message(),
            "descales.granularity is 2; it must be head or block");
}

}  // namespace
}  // namespace fp8_sdpa::tests
