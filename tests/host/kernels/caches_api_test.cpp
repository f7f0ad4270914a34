// Ragged lengths and pages in a problem's description: what is refused and what is served, from
// both sides of each limit; and how decode cuts the keys. Nothing is launched or read.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "decode/cost_model.hpp"
#include "decode/decode.hpp"
#include "dispatch/check_problem.hpp"
#include "dispatch/variant.hpp"
#include "dispatch/variant_impl.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "tests/host/kernels/declined.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::tests {
namespace {

template <class T>
T* at(int which) {
  constexpr int kApart = 50;
  return reinterpret_cast<T*>((std::uintptr_t{20} + which) << kApart);
}

/// 3 sequences of at most 100 keys, in 40 pages of 16, (pages, page_size, heads_kv, head_dim).
Problem paged() {
  Problem p = made_up(3, 8, 2, 2, 100, 128);
  p.ragged.seqused_kv = at<std::int32_t>(0);
  p.pages = {at<std::int32_t>(1), 40, 16, 7};
  p.fault = at<std::uint32_t>(2);
  for (Tensor* t : {&p.k, &p.v}) {
    t->stride_batch = 16 * 2 * 128;
    t->stride_seq = 2 * 128;
    t->stride_head = 128;
  }
  return p;
}

using Bad = Declined<Problem>;
class BadCaches : public testing::TestWithParam<Bad> {};

TEST_P(BadCaches, AreDeclinedWithTheReason) {
  Problem p = paged();
  ASSERT_TRUE(plan(p, host_executor()).ok());
  GetParam().change(p);
  expect_declined(GetParam(), plan(p, host_executor()));
}

INSTANTIATE_TEST_SUITE_P(
    Api, BadCaches,
    testing::Values(
        Bad{"NoTable", [](Problem& p) { p.pages.block_table = nullptr; }, kInvalid,
            "pages.block_table is null, but pages.pages, page_size or max_pages is not 0"},
        Bad{"NoTableButPages", [](Problem& p) { p.pages = {.pages = 1}; }, kInvalid,
            "pages.block_table is null"},
        Bad{"NoTableButSize", [](Problem& p) { p.pages = {.page_size = 1}; }, kInvalid,
            "pages.block_table is null"},
        Bad{"NoTableButMost", [](Problem& p) { p.pages = {.max_pages = 1}; }, kInvalid,
            "pages.block_table is null"},
        Bad{"NoPages", [](Problem& p) { p.pages.pages = 0; }, kInvalid,
            "pages.pages is 0; it must be at least 1"},
        Bad{"NoKeysInAPage", [](Problem& p) { p.pages.page_size = 0; }, kInvalid,
            "pages.page_size is 0; it must be at least 1"},
        Bad{"NoRoom", [](Problem& p) { p.pages.max_pages = -1; }, kInvalid,
            "pages.max_pages is -1; it must be at least 1"},
        Bad{"ATableShorterThanItsLength", [](Problem& p) { p.pages.max_pages = 6; }, kInvalid,
            "seq_kv is 100; pages.max_pages * pages.page_size keys have room, 96"},
        Bad{"MisalignedTable",
            [](Problem& p) {
              p.pages.block_table =
                  reinterpret_cast<const std::int32_t*>(std::uintptr_t{0x1000002});
            },
            kInvalid, "pages.block_table is not aligned to 4 bytes"},
        Bad{"MisalignedLengths",
            [](Problem& p) {
              p.ragged.seqused_kv = reinterpret_cast<const std::int32_t*>(std::uintptr_t{0x100001});
            },
            kInvalid, "ragged.seqused_kv is not aligned to 4 bytes"},
        Bad{"MisalignedFault",
            [](Problem& p) {
              p.fault = reinterpret_cast<std::uint32_t*>(std::uintptr_t{0x1000001});
            },
            kInvalid, "fault is not aligned to 4 bytes"},
        Bad{"FaultInO", [](Problem& p) { p.fault = static_cast<std::uint32_t*>(p.o.data) + 5; },
            kInvalid, "fault overlaps o"},
        Bad{"FaultInTheTable",
            [](Problem& p) {
              p.fault = const_cast<std::uint32_t*>(
                  reinterpret_cast<const std::uint32_t*>(p.pages.block_table) + 20);
            },
            kInvalid, "fault overlaps pages.block_table"},
        Bad{"LseInTheLengths",
            [](Problem& p) {
              p.lse = reinterpret_cast<float*>(const_cast<std::int32_t*>(p.ragged.seqused_kv) + 2);
            },
            kInvalid, "lse overlaps ragged.seqused_kv"},
        Bad{"OInTheLastPage",
            [](Problem& p) {
              p.o.data = static_cast<std::uint8_t*>(p.k.data) + 40 * 16 * 2 * 128 - 16;
            },
            kInvalid, "o overlaps k"},
        Bad{"TransposedV",
            [](Problem& p) {
              p.v.stride_seq = 1;
              p.v.stride_dim = 16;
            },
            kUnsupported,
            "decode_split_kv serves a row-major v (stride_dim 1), not stride_dim 16"}),
    name_of<Problem>);

// Touching is legal: one word before and one behind.
TEST(CheckCaches, WordsMayTouch) {
  for (const int words : {-1, 21}) {
    Problem p = paged();
    p.fault =
        reinterpret_cast<std::uint32_t*>(const_cast<std::int32_t*>(p.pages.block_table)) + words;
    EXPECT_TRUE(detail::check_problem(p).ok()) << detail::check_problem(p).message();
  }
  for (const int words : {-1, 3}) {
    Problem p = paged();
    p.fault =
        reinterpret_cast<std::uint32_t*>(const_cast<std::int32_t*>(p.ragged.seqused_kv)) + words;
    EXPECT_TRUE(detail::check_problem(p).ok()) << detail::check_problem(p).message();
  }
  Problem p = paged();
  p.o.data = static_cast<std::uint8_t*>(p.k.data) + 40 * 16 * 2 * 128;
  EXPECT_TRUE(detail::check_problem(p).ok()) << detail::check_problem(p).message();
}

// One page, one key in each: strides that are not walked may be any.
TEST(CheckCaches, UnusedStridesOfPagesAreNotLookedAt) {
  Problem p = paged();
  p.pages.pages = 1;
  p.k.stride_batch = 7;
  EXPECT_TRUE(plan(p, host_executor()).ok());
  p = paged();
  p.pages = {p.pages.block_table, 40, 1, 100};
  p.v.stride_seq = 7;
  EXPECT_TRUE(plan(p, host_executor()).ok());
}

TEST(CheckCaches, WhoServesWholeTensorsSaysSo) {
  Problem ragged = made_up(1, 1, 1, 32, 160, 64);
  ragged.ragged.seqused_kv = at<std::int32_t>(0);
  Problem packed = made_up(1, 1, 1, 32, 160, 64);
  packed.ragged = {.cu_seqlens_q = at<std::int32_t>(0), .total_q = 40};
  Problem packed_keys = made_up(1, 1, 1, 32, 160, 64);
  packed_keys.ragged = {.cu_seqlens_kv = at<std::int32_t>(0), .total_kv = 170};
  Problem pages = made_up(1, 1, 1, 32, 160, 64);
  pages.pages = {at<std::int32_t>(1), 5, 32, 5};
  int serving = 0;
  for (const Variant& variant : variants()) {
    for (const auto& [problem, what] : {std::pair{ragged, "ragged lengths"},
                                        {packed, "ragged lengths"},
                                        {packed_keys, "ragged lengths"},
                                        {pages, "pages"}}) {
      const Status status = variant.supports(problem, host_executor());
      if (variant.impl->serves_caches) {
        EXPECT_TRUE(status.ok()) << status.message();
        ++serving;
      } else {
        EXPECT_EQ(status.code(), kUnsupported);
        EXPECT_EQ(status.message(),
                  std::string(variant.name) + " serves whole tensors, not " + what);
      }
    }
  }
  EXPECT_EQ(serving, 2 * 4);
  for (const Problem& problem : {ragged, packed, packed_keys, pages}) {
    UnquantisedProblem unquantised;
    unquantised.attention = problem;
    const auto made = plan(unquantised, host_executor());
    ASSERT_FALSE(made.ok());
    EXPECT_TRUE(made.status().message().starts_with(
        "unquantised problems are served as whole tensors, not as pages or ragged lengths"))
        << made.status().message();
  }
}

void expect_served(const Problem& p, bool served, const std::string& reason) {
  const Status status = decode::supports(p, host_executor());
  EXPECT_EQ(status.ok(), served) << status.message();
  if (served) return;
  EXPECT_EQ(status.code(), kUnsupported);
  EXPECT_EQ(status.message(), "decode_split_kv serves " + reason);
}

TEST(DecodeLimits, QueryRowsOfAKvHead) {
  for (const auto& [heads_q, seq_q] : {std::pair{2, 64}, {128, 1}, {16, 8}, {6, 21}}) {
    expect_served(made_up(1, heads_q, 2, seq_q, 9, 64), true, "");
    const std::string group = std::to_string(heads_q / 2);
    expect_served(made_up(1, heads_q, 2, seq_q + 1, 9, 64), false,
                  "at most 64 query rows of a KV head of whole tensors, not " +
                      std::to_string(seq_q + 1) + " * " + group + " (seq_q * heads_q / heads_kv)");
  }
  Problem p = made_up(1, 65, 1, 1, 9, 64);
  expect_served(p, false,
                "at most 64 query rows of a KV head of whole tensors, not 1 * 65 (seq_q * heads_q "
                "/ heads_kv)");
  // Of a ragged batch, in tiles.
  const std::int32_t offsets[] = {0, 9};
  p.ragged = {.cu_seqlens_kv = offsets, .total_kv = 9};
  expect_served(p, true, "");
  constexpr std::int64_t kMost = 1'073'741'823;
  p.seq_q = kMost / 65;
  expect_served(p, true, "");
  p.seq_q += 1;
  expect_served(p, false,
                "at most 1073741823 query rows of a KV head, not 16519105 * 65 (seq_q * heads_q / "
                "heads_kv)");
}

TEST(DecodeLimits, Sizes) {
  for (const int head_dim : {16, 64, 96, 128, 192, 256}) {
    expect_served(made_up(1, 1, 1, 1, 9, head_dim),
                  head_dim == 64 || head_dim == 128 || head_dim == 256,
                  "head_dim 64, 128 and 256, not " + std::to_string(head_dim));
  }
  constexpr std::int64_t kMost = 1'073'741'823;
  expect_served(made_up(1, 1, 1, 1, kMost, 64), true, "");
  expect_served(made_up(1, 1, 1, 1, kMost + 1, 64), false,
                "sequences up to 1073741823, not 1073741824");
  for (const int batch : {1 << 27, (1 << 27) + 1}) {
    Problem p = made_up(batch, 4, 2, 1, 9, 64);
    p.k.stride_batch = p.v.stride_batch = 0;
    expect_served(p, batch == 1 << 27,
                  "at most 268435456 tiles of 64 rows of all KV heads, not 268435458 * 1");
  }
  // Of a ragged batch, each in tiles of rows.
  const std::int32_t offsets[] = {0};
  for (const std::int64_t seq_q : {4096, 4097}) {
    Problem p = made_up(1 << 21, 2, 2, seq_q, 9, 64);
    p.ragged = {.cu_seqlens_q = offsets, .total_q = 9};
    p.k.stride_batch = p.v.stride_batch = 0;
    expect_served(p, seq_q == 4096,
                  "at most 268435456 tiles of 64 rows of all KV heads, not 4194304 * 65");
  }
}

// Where a row begins is counted in 16 bytes, by 32 bits.
TEST(DecodeLimits, BytesOfKAndV) {
  constexpr std::int64_t kMost = std::int64_t{1} << 36;
  for (Tensor Problem::*tensor : {&Problem::k, &Problem::v}) {
    for (const bool in_pages : {false, true}) {
      Problem p = in_pages ? paged() : made_up(2, 4, 2, 1, 9, 64);
      p.pages.pages = in_pages ? 2 : 0;
      const std::int64_t rows = in_pages ? p.pages.page_size : p.seq_kv;
      Tensor& large = p.*tensor;
      large.stride_batch = kMost - p.head_dim - large.stride_head - (rows - 1) * large.stride_seq;
      expect_served(p, true, "");
      large.stride_batch += 16;
      expect_served(p, false, "k and v of up to 64 GiB, not of 68719476752 bytes");
    }
  }
}

TEST(DecodeLimits, Formats) {
  for (const Dtype q : {Dtype::kE4M3, Dtype::kE5M2}) {
    for (const Dtype k : {Dtype::kE4M3, Dtype::kE5M2}) {
      for (const Dtype v : {Dtype::kE4M3, Dtype::kE5M2}) {
        Problem p = paged();
        p.q.dtype = q;
        p.k.dtype = k;
        p.v.dtype = v;
        expect_served(p, q == k && k == v,
                      std::string("one FP8 format for q, k and v, not ") + name_of(q) + ", " +
                          name_of(k) + " and " + name_of(v));
      }
    }
  }
  Problem p = paged();
  p.v.stride_dim = 32;
  expect_served(p, false, "a row-major v (stride_dim 1), not stride_dim 32");
}

// Of 132 multiprocessors: once round where there are few KV heads, else eight times.
// The cost model itself, of 132 multiprocessors. Who fits it anew writes other numbers here.
TEST(DecodeSplits, AreThoseOfTheCostModel) {
  struct Cut {
    int batch, heads_q, heads_kv;
    std::int64_t seq_q, keys;
    int head_dim;
    bool ragged;
    int split;
    double us;
  };
  const std::int32_t lengths[] = {0};
  for (const Cut& cut :
       {Cut{1, 1, 1, 1, 131072, 64, false, 1024, 16.73},
        Cut{1, 8, 8, 1, 131072, 128, false, 4096, 69.98},
        Cut{1, 64, 8, 1, 2048, 128, false, 128, 9.13},
        Cut{16, 64, 8, 1, 32768, 64, false, 16384, 132.71},
        Cut{17, 128, 8, 1, 32768, 256, false, 2560, 618.63},
        Cut{33, 16, 8, 8, 5000, 128, false, 5120, 80.40},
        Cut{7, 16, 8, 9, 5000, 128, false, 2560, 62.92},
        Cut{3, 32, 2, 4, 9000, 64, false, 512, 17.89},
        Cut{3, 32, 2, 2, 9000, 256, false, 512, 49.78},
        Cut{128, 64, 8, 1, 8192, 128, false, 8192, 499.77},
        Cut{128, 64, 8, 1, 8192, 128, true, 4096, 524.30},
        Cut{128, 64, 8, 1, 300, 128, true, 384, 34.01}, Cut{1, 1, 1, 1, 1, 64, false, 128, 6.40},
        Cut{1, 1, 1, 1, 128, 64, false, 128, 7.01}, Cut{1, 1, 1, 1, 129, 64, false, 256, 7.02}}) {
    Problem p = made_up(cut.batch, cut.heads_q, cut.heads_kv, cut.seq_q, cut.keys, cut.head_dim);
    if (cut.ragged) p.ragged.seqused_kv = lengths;
    const std::string name = std::to_string(cut.batch) + " x " + std::to_string(cut.keys);
    EXPECT_EQ(decode::split_keys(p, 132, {}), cut.split) << name;
    EXPECT_NEAR(decode::predicted_us(p, 132, {}), cut.us, 0.005) << name;
    EXPECT_EQ(decode::split_keys(p, 132, {.batch_invariant = true}), 1024) << name;
    EXPECT_EQ(decode::split_keys(p, 132, {.no_workspace = true}), (cut.keys + 127) / 128 * 128)
        << name;
  }
  const Problem many_rows = made_up(1, 65, 1, 1, 64, 64);
  EXPECT_EQ(decode::predicted_us(many_rows, 132, {}), std::numeric_limits<double>::infinity());
}

// Of packed queries, by how many there are in all, and one more for each sequence.
TEST(DecodeSplits, CountTheTilesOfPackedQueries) {
  Problem p = made_up(3, 8, 2, 500, 9000, 128);
  const std::int32_t offsets[] = {0};
  p.ragged = {.cu_seqlens_q = offsets, .total_q = 100};
  EXPECT_EQ(decode::tiles_of_rows(p, 2), 2 * (7 + 3));  // 400 rows of a KV head, 64 a tile
  p.ragged.total_q = 1500;
  EXPECT_EQ(decode::tiles_of_rows(p, 2), 2 * 3 * 32);  // 2000 rows a sequence
}

// A GPU's multiprocessors, not those of the one that costs were measured on.
TEST(DecodeSplits, AreMadeForTheDevice) {
  Device device = made_up_device(90);
  const Problem p = made_up(1, 64, 8, 1, 2048, 128);
  const Variant* variant = *find_variant("decode_split_kv");
  if (!variant->supports(p, device).ok()) GTEST_SKIP() << "this build has no device code";
  for (const auto& [sm_count, splits] :
       {std::pair{132, 16}, {16, decode::up(2048, decode::split_keys(p, 16, {}))}}) {
    device.sm_count = sm_count;
    const auto made = plan(p, device, variant);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->workspace_bytes(),
              8U * static_cast<std::size_t>(splits * 16 * (128 * 4 + 8) + 8));
  }
}

// Memory that an int cannot count the splits of: one KV head's, for all.
TEST(DecodeSplits, AreNoMoreThanAGridHas) {
  Problem p = made_up(1 << 10, 1 << 10, 1 << 10, 1, 1 << 21, 64);
  p.softmax_scale = 0.1F;
  for (Tensor* tensor : {&p.k, &p.v}) tensor->stride_batch = tensor->stride_head = 0;
  const Variant* variant = *find_variant("decode_split_kv");
  const auto refused = plan(p, host_executor(), variant, {.batch_invariant = true});
  EXPECT_EQ(
      refused.status().message(),
      "decode_split_kv serves at most 2147483647 splits of tiles of rows, not 1048576 * 2048; "
      "without batch_invariant there are fewer");
  p.seq_kv -= 1024;
  EXPECT_TRUE(plan(p, host_executor(), variant, {.batch_invariant = true}).ok());
}

// A part of 16 rows, or of 64: O in fp32, m and l; and a word for each tile of rows. With
// batch_invariant always of 64: as many warps share a key whatever comes with a row.
TEST(DecodeSplits, HaveRoomForTheirParts) {
  const Variant* variant = *find_variant("decode_split_kv");
  for (const auto& [seq_q, rows, tiles] :
       {std::tuple{2, 16, 1}, {3, 64, 1}, {9, 64, 1}, {10, 64, 2}}) {
    Problem p = made_up(3, 14, 2, seq_q, 2050, 128);
    p.softmax_scale = 0.1F;
    p.ragged.seqused_kv = at<std::int32_t>(0);
    const auto bytes = [&](const PlanOptions& options) {
      const auto made = plan(p, host_executor(), variant, options);
      EXPECT_TRUE(made.ok()) << made.status().message();
      return made.ok() ? made->workspace_bytes() : 1;
    };
    const auto needed = [&](int splits, int rows_of_tile) {
      return static_cast<std::size_t>(3 * 2 * tiles * (splits * rows_of_tile * (128 * 4 + 8) + 8));
    };
    EXPECT_EQ(bytes({}), needed(9, rows));  // of 256 keys on the host executor
    EXPECT_EQ(bytes({.batch_invariant = true}), needed(3, 64));
    EXPECT_EQ(bytes({.no_workspace = true}), 0U);
    p.seq_kv = 1024;
    EXPECT_EQ(bytes({.batch_invariant = true}), 0U);
  }
}

}  // namespace
}  // namespace fp8_sdpa::tests
