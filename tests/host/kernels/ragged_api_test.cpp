// Packed queries and keys in a problem's description: what is refused, and what is served from both
// sides of each limit. Nothing is launched or read.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "dispatch/check_problem.hpp"
#include "dispatch/variant.hpp"
#include "dispatch/variant_impl.hpp"
#include "fp8_sdpa/plan.hpp"
#include "sm90/work/packing.hpp"
#include "tests/host/kernels/declined.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::tests {
namespace {

using Bad = Declined<Problem>;

template <class T>
T* at(int which) {
  constexpr int kApart = 50;
  return reinterpret_cast<T*>((std::uintptr_t{20} + which) << kApart);
}

/// 3 sequences of at most 20 queries and 200 keys, packed: 50 and 400 rows.
Problem packed() {
  Problem p = made_up(3, 8, 2, 20, 200, 128);
  p.ragged = {.cu_seqlens_q = at<std::int32_t>(0),
              .cu_seqlens_kv = at<std::int32_t>(1),
              .total_q = 50,
              .total_kv = 400};
  p.fault = at<std::uint32_t>(2);
  for (Tensor* t : {&p.q, &p.o, &p.k, &p.v}) {
    const bool of_keys = t == &p.k || t == &p.v;
    t->stride_batch = 7;  // not looked at
    t->stride_seq = (of_keys ? 2 : 8) * 128;
    t->stride_head = 128;
  }
  p.lse = at<float>(3);
  return p;
}

class BadOffsets : public testing::TestWithParam<Bad> {};

TEST_P(BadOffsets, AreDeclinedWithTheReason) {
  Problem p = packed();
  const auto made = plan(p, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  GetParam().change(p);
  expect_declined(GetParam(), plan(p, host_executor()));
}

constexpr std::int64_t kTooMany = std::int64_t{1} << 31;
INSTANTIATE_TEST_SUITE_P(
    Api, BadOffsets,
    testing::Values(
        Bad{"NoOffsetsOfQueries", [](Problem& p) { p.ragged.cu_seqlens_q = nullptr; }, kInvalid,
            "ragged.cu_seqlens_q is null, but ragged.total_q is 50"},
        Bad{"NoOffsetsOfKeys", [](Problem& p) { p.ragged.cu_seqlens_kv = nullptr; }, kInvalid,
            "ragged.cu_seqlens_kv is null, but ragged.total_kv is 400"},
        Bad{"FewerThanNoQueries", [](Problem& p) { p.ragged.total_q = -1; }, kInvalid,
            "ragged.total_q is -1; it must be 0 to 2^31 - 1"},
        Bad{"TooManyKeys", [](Problem& p) { p.ragged.total_kv = kTooMany; }, kInvalid,
            "ragged.total_kv is 2147483648; it must be 0 to 2^31 - 1"},
        Bad{"LengthsToo", [](Problem& p) { p.ragged.seqused_kv = at<std::int32_t>(4); }, kInvalid,
            "ragged.cu_seqlens_kv and ragged.seqused_kv are both given; keys lie in one of these "
            "ways"},
        Bad{"PagesToo",
            [](Problem& p) {
              p.pages = {at<std::int32_t>(4), 400, 16, 13};
            },
            kInvalid, "ragged.cu_seqlens_kv and pages.block_table are both given"},
        Bad{"MisalignedOffsetsOfQueries",
            [](Problem& p) {
              p.ragged.cu_seqlens_q = reinterpret_cast<const std::int32_t*>(std::uintptr_t{0x1001});
            },
            kInvalid, "ragged.cu_seqlens_q is not aligned to 4 bytes"},
        Bad{"MisalignedOffsetsOfKeys",
            [](Problem& p) {
              p.ragged.cu_seqlens_kv =
                  reinterpret_cast<const std::int32_t*>(std::uintptr_t{0x1002});
            },
            kInvalid, "ragged.cu_seqlens_kv is not aligned to 4 bytes"},
        Bad{"FaultInTheLastOffset",
            [](Problem& p) {
              p.fault = const_cast<std::uint32_t*>(
                  reinterpret_cast<const std::uint32_t*>(p.ragged.cu_seqlens_q) + 3);
            },
            kInvalid, "fault overlaps ragged.cu_seqlens_q"},
        Bad{"LseInTheLastOffset",
            [](Problem& p) {
              p.lse =
                  reinterpret_cast<float*>(const_cast<std::int32_t*>(p.ragged.cu_seqlens_kv) + 3);
            },
            kInvalid, "lse overlaps ragged.cu_seqlens_kv"},
        Bad{"OInTheLastKey",
            [](Problem& p) {
              p.o.data = static_cast<std::uint8_t*>(p.k.data) + 400 * 2 * 128 - 16;
            },
            kInvalid, "o overlaps k"},
        Bad{"FaultInTheLastRowOfO",
            [](Problem& p) { p.fault = static_cast<std::uint32_t*>(p.o.data) + 50 * 8 * 64 - 1; },
            kInvalid, "fault overlaps o"},
        Bad{"FaultInTheLastLse",
            [](Problem& p) { p.fault = reinterpret_cast<std::uint32_t*>(p.lse) + 50 * 8 - 1; },
            kInvalid, "fault overlaps lse"}),
    name_of<Problem>);

// One word, or one row, behind; and no rows at all.
TEST(CheckRagged, WhatPackedTensorsDoNotHaveMayBeAnybodys) {
  Problem p = packed();
  p.fault = static_cast<std::uint32_t*>(p.o.data) + 50 * 8 * 64;
  EXPECT_TRUE(detail::check_problem(p).ok()) << detail::check_problem(p).message();
  p.fault = reinterpret_cast<std::uint32_t*>(p.lse) + 50 * 8;
  EXPECT_TRUE(detail::check_problem(p).ok()) << detail::check_problem(p).message();
  p.fault = reinterpret_cast<std::uint32_t*>(const_cast<std::int32_t*>(p.ragged.cu_seqlens_q) + 4);
  EXPECT_TRUE(detail::check_problem(p).ok()) << detail::check_problem(p).message();
  p = packed();
  p.ragged.total_q = p.ragged.total_kv = 0;
  EXPECT_TRUE(plan(p, host_executor()).ok());
}

/// Of sm90_ragged at head_dim 64.
Status ragged_supports(const Problem& p) {
  return (*find_variant("sm90_ragged"))->impl->supports(p, host_executor());
}

TEST(RaggedLimits, Pages) {
  for (const auto& [page_size, served] : {std::pair{1, false},
                                          {4, false},
                                          {8, true},
                                          {16, true},
                                          {24, false},
                                          {32, true},
                                          {64, true},
                                          {96, false},
                                          {128, true},
                                          {192, false},
                                          {256, true},
                                          {1024, true}}) {
    Problem p = made_up(1, 2, 2, 40, 2048, 64);
    p.pages = {at<std::int32_t>(1), 4000, page_size, 2048};
    const Status status = ragged_supports(p);
    EXPECT_EQ(status.ok(), served) << page_size;
    if (served) continue;
    EXPECT_EQ(status.message(),
              "sm90_ragged serves pages of 8 keys or more that 128 is a multiple of, or that are "
              "multiples of it, not of " +
                  std::to_string(page_size));
  }
}

TEST(RaggedLimits, ValuesAreRowMajor) {
  Problem p = made_up(1, 2, 2, 40, 2048, 64);
  p.v.stride_seq = 1;
  p.v.stride_dim = 2048;
  EXPECT_EQ(ragged_supports(p).message(),
            "sm90_ragged serves a row-major v (stride_dim 1), not stride_dim 2048");
}

// Rows of heads that share tiles are counted in an int: where they are too many, heads do not.
TEST(RaggedPacking, RowsOfHeadsThatShareTilesAreAnInt) {
  constexpr std::int64_t kMost = 1'073'741'823 / 16 * 2;  // strips of two queries of 8 heads
  sm90::Config config;
  config.ragged = true;
  for (const std::int64_t more : {0, 1}) {
    Problem p = made_up(2, 8, 1, kMost + more, 2048, 64);
    p.ragged = {.cu_seqlens_q = at<std::int32_t>(1), .total_q = 2};  // of one on the average
    EXPECT_EQ(sm90::packing_of(config, p).group, more == 0 ? 8 : 1);
    EXPECT_TRUE(ragged_supports(p).ok()) << ragged_supports(p).message();
  }
}

// By the mean of the queries: the heads of a group share tiles where that takes fewer, in the
// strips that waste fewest rows.
TEST(RaggedPacking, TakesFewestTiles) {
  sm90::Config config;
  config.row_groups = 2;
  config.ragged = true;
  struct Case {
    int heads_q, heads_kv;
    std::int64_t queries;
    int group, log2, strips;
    std::int64_t row_tiles;
  };
  for (const Case& c :
       {Case{8, 8, 1, 1, 0, 1, 1}, Case{8, 4, 1, 2, 1, 1, 1}, Case{8, 2, 1, 4, 2, 1, 1},
        Case{8, 1, 1, 8, 3, 1, 1}, Case{16, 1, 1, 16, 3, 2, 1}, Case{6, 1, 1, 6, 3, 1, 1},
        Case{5, 1, 3, 5, 3, 1, 1}, Case{14, 2, 16, 7, 0, 7, 1}, Case{8, 1, 17, 8, 3, 1, 2},
        Case{8, 1, 64, 8, 3, 1, 4}, Case{8, 1, 128, 1, 0, 1, 1}, Case{8, 1, 1000, 8, 3, 1, 63},
        Case{3, 1, 40, 3, 0, 3, 2}, Case{3, 1, 100, 1, 0, 1, 1}, Case{7, 1, 772, 7, 0, 7, 43},
        Case{21, 3, 24, 7, 3, 1, 2}, Case{40, 8, 300, 5, 0, 5, 12}, Case{6, 2, 8, 3, 2, 1, 1}}) {
    Problem p = made_up(3, c.heads_q, c.heads_kv, c.queries, 2048, 64);
    const sm90::Packing packing = sm90::packing_of(config, p);
    SCOPED_TRACE(testing::Message() << c.heads_q << " / " << c.heads_kv << ", " << c.queries);
    EXPECT_EQ(packing.group, c.group);
    EXPECT_EQ(packing.log2, c.log2);
    EXPECT_EQ(packing.strips, c.strips);
    EXPECT_EQ(packing.heads, c.heads_q / c.group);
    EXPECT_EQ(packing.row_tiles(c.queries), c.row_tiles);
    p.q.stride_head = 0;
    EXPECT_EQ(sm90::packing_of(config, p).group, 1);
    config.ragged = false;
    EXPECT_EQ(sm90::packing_of(config, p).group, 1);
    config.ragged = true;
  }
}

// Strips of 4 queries of up to 4 heads, of which 7 take two.
TEST(RaggedPacking, CountsRowsAndQueries) {
  const sm90::Packing packing{128, 1, 7, 2, 2};
  EXPECT_EQ(packing.rows(1), 32);
  EXPECT_EQ(packing.rows(4), 32);
  EXPECT_EQ(packing.rows(5), 64);
  EXPECT_EQ(packing.row_tiles(17), 2);
  EXPECT_EQ(packing.queries_of(1), 16);
  // A tile may end between strips of the same queries.
  const sm90::Packing of_three{128, 1, 3, 0, 3};
  EXPECT_EQ(of_three.queries_of(1), 48);
  EXPECT_EQ(of_three.queries_of(3), 128);
}

// Sequences that are padded, and those that all begin a tile of their own.
TEST(RaggedPacking, WorkTilesAreNoMoreThanThat) {
  const sm90::Packing packing{128, 4, 2, 1, 1};
  Problem p = made_up(3, 8, 4, 100, 2048, 64);
  EXPECT_EQ(sm90::most_work_tiles(packing, p), 4 * 3 * 2);
  p.ragged = {.cu_seqlens_q = at<std::int32_t>(1), .total_q = 30};
  EXPECT_EQ(sm90::most_work_tiles(packing, p), 4 * (1 + 3));
  p.ragged.total_q = 300;
  EXPECT_EQ(sm90::most_work_tiles(packing, p), 4 * 3 * 2);
}

}  // namespace
}  // namespace fp8_sdpa::tests
