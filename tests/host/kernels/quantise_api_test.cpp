// What plan() says of a quantisation that it declines.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <string>

#include "dispatch/compiled_archs.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "quantise/params.hpp"
#include "tests/host/kernels/declined.hpp"

namespace fp8_sdpa {
namespace {

constexpr int kSeq = 32;
constexpr int kHeads = 2;
constexpr int kDim = 64;
alignas(16) std::uint16_t g_from[2 * kHeads * kSeq * kDim];
alignas(16) std::uint8_t g_codes[2 * kHeads * kSeq * kDim];
alignas(16) float g_descales[2 * kHeads];
alignas(16) float g_mean[2 * kHeads * kDim];
std::uint32_t g_infinities;
float g_dots[2 * kHeads * kSeq + 2 * kHeads * kDim];
float g_vectors[2 * kDim];

Quantisation good() {
  Quantisation q;
  q.batch = 2;
  q.heads = kHeads;
  q.seq = kSeq;
  q.head_dim = kDim;
  q.from = {g_from, Dtype::kBFloat16, kHeads * kSeq * kDim, kSeq * kDim, kDim, 1};
  q.codes = {g_codes, Dtype::kE4M3, kHeads * kSeq * kDim, kSeq * kDim, kDim, 1};
  q.descales = g_descales;
  q.mean = g_mean;
  q.infinities = &g_infinities;
  return q;
}

/// One vector for both heads of a batch.
void with_dots(Quantisation& q) {
  q.dot_with = g_vectors;
  q.dots = g_dots;
  q.dot_group = kHeads;
}

using Bad = tests::Declined<Quantisation>;
using tests::kInvalid;
using tests::kUnsupported;

class BadQuantisation : public testing::TestWithParam<Bad> {};

TEST_P(BadQuantisation, IsDeclinedWithTheReason) {
  Quantisation q = good();
  GetParam().change(q);
  const auto made = plan(q, host_executor());
  tests::expect_declined(GetParam(), made);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadQuantisation,
    testing::Values(
        Bad{"NoBatch", [](Quantisation& q) { q.batch = 0; }, kInvalid, "batch is 0; it must be"},
        Bad{"NoHeads", [](Quantisation& q) { q.heads = -1; }, kInvalid, "heads is -1"},
        Bad{"NoRows", [](Quantisation& q) { q.seq = 0; }, kInvalid, "seq is 0"},
        Bad{"Dim", [](Quantisation& q) { q.head_dim = 96; }, kUnsupported,
            "head_dim is 96; 64, 128 and 256 are served"},
        Bad{"Long", [](Quantisation& q) { q.seq = (std::int64_t{1} << 30) + 1; }, kUnsupported,
            "seq is 1073741825; at most 2^30"},
        Bad{"Large",
            [](Quantisation& q) {
              q.seq = std::int64_t{1} << 30;
              q.heads = 1 << 10;
            },
            kUnsupported, "batch * heads * seq is 2 * 1024 * 1073741824"},
        Bad{"ManyHeads", [](Quantisation& q) { q.batch = q.heads = 1 << 30; }, kUnsupported,
            "batch * heads * seq is 1073741824"},
        Bad{"BlockRows", [](Quantisation& q) { q.block_rows = 32; }, kUnsupported,
            "block_rows is 32; 64"},
        Bad{"FromFp8", [](Quantisation& q) { q.from.dtype = Dtype::kE5M2; }, kInvalid,
            "from.dtype is e5m2; it must be bf16, half or float"},
        Bad{"CodesAreHalf", [](Quantisation& q) { q.codes.dtype = Dtype::kHalf; }, kInvalid,
            "codes.dtype is half; it must be e4m3, e5m2 or int8"},
        Bad{"BlocksOfInt8",
            [](Quantisation& q) {
              q.codes.dtype = Dtype::kInt8;
              q.block_rows = kKeysOfBlock;
            },
            kUnsupported, "block_rows is 128; codes in int8 have a descale a head"},
        Bad{"FromNull", [](Quantisation& q) { q.from.data = nullptr; }, kInvalid,
            "from.data is null"},
        Bad{"FromMisaligned", [](Quantisation& q) { q.from.data = g_from + 4; }, kInvalid,
            "from.data is not aligned to 16 bytes"},
        Bad{"CodesMisaligned", [](Quantisation& q) { q.codes.data = g_codes + 8; }, kInvalid,
            "codes.data is not aligned to 16 bytes"},
        Bad{"FromStride", [](Quantisation& q) { q.from.stride_seq = 68; }, kInvalid,
            "from.stride_seq is 68 elements"},
        Bad{"FromsDim", [](Quantisation& q) { q.from.stride_dim = 32; }, kInvalid,
            "from.stride_dim is 32; head_dim must be contiguous"},
        Bad{"CodesOverlap", [](Quantisation& q) { q.codes.stride_head = 0; }, kInvalid,
            "output rows would overlap"},
        Bad{"NoDescales", [](Quantisation& q) { q.descales = nullptr; }, kInvalid,
            "descales is null"},
        Bad{"MeanMisaligned",
            [](Quantisation& q) {
              q.mean = reinterpret_cast<float*>(reinterpret_cast<char*>(g_mean) + 2);
            },
            kInvalid, "mean is not aligned to 4 bytes"},
        Bad{"CountMisaligned",
            [](Quantisation& q) {
              q.infinities = reinterpret_cast<std::uint32_t*>(reinterpret_cast<char*>(g_mean) + 2);
            },
            kInvalid, "infinities is not aligned to 4 bytes"},
        Bad{"DotsAlone", [](Quantisation& q) { q.dots = g_dots; }, kInvalid, "dot_with is null"},
        Bad{"VectorsAlone", [](Quantisation& q) { q.dot_with = g_vectors; }, kInvalid,
            "dot_with is given and dots is null"},
        Bad{"DotGroup",
            [](Quantisation& q) {
              with_dots(q);
              q.dot_group = 3;
            },
            kInvalid, "dot_group is 3; it must divide heads, which is 2"},
        Bad{"NoDotGroup",
            [](Quantisation& q) {
              with_dots(q);
              q.dot_group = 0;
            },
            kInvalid, "dot_group is 0"},
        Bad{"DotsMisaligned",
            [](Quantisation& q) {
              with_dots(q);
              q.dots = reinterpret_cast<float*>(reinterpret_cast<char*>(g_dots) + 2);
            },
            kInvalid, "dots is not aligned to 4 bytes"},
        // The last of them alone.
        Bad{"DotsInMean",
            [](Quantisation& q) {
              with_dots(q);
              q.mean = g_dots + 2 * kHeads * kSeq - 1;
            },
            kInvalid, "dots overlaps mean"},
        Bad{"VectorsInDots",
            [](Quantisation& q) {
              with_dots(q);
              q.dot_with = g_dots + 2 * kHeads * kSeq - 1;
            },
            kInvalid, "dots overlaps dot_with"},
        Bad{"CodesInFrom", [](Quantisation& q) { q.codes.data = g_from; }, kInvalid,
            "codes overlaps from; it needs memory of its own"},
        Bad{"DescalesInCodes",
            [](Quantisation& q) { q.descales = reinterpret_cast<float*>(g_codes); }, kInvalid,
            "descales overlaps codes"},
        // The last of them alone.
        Bad{"MeanInDescales", [](Quantisation& q) { q.descales = g_mean + 2 * kHeads * kDim - 1; },
            kInvalid, "mean overlaps descales"},
        Bad{"CountInMean",
            [](Quantisation& q) {
              q.infinities = reinterpret_cast<std::uint32_t*>(g_mean + 2 * kHeads * kDim - 1);
            },
            kInvalid, "infinities overlaps mean"}),
    tests::name_of<Quantisation>);

TEST(Quantisation, IsPlannedAndAsksForAWorkspace) {
  Quantisation q = good();
  const auto made = plan(q, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_GT(made->workspace_bytes(), 0U);
  EXPECT_EQ(quantise(*made, nullptr, nullptr).message(), "workspace is null");
  // Strides of axes of size 1 are not looked at, and inputs may be broadcast.
  q.batch = 1;
  q.from.stride_batch = q.codes.stride_batch = 7;
  q.from.stride_head = 0;
  q.mean = nullptr;
  q.infinities = nullptr;
  const auto odd = plan(q, host_executor());
  EXPECT_TRUE(odd.ok()) << odd.status().message();
}

// The tiles of a launch, and the heads, are counted in an int: the most of each, and one more.
TEST(Quantisation, TakesAsManyHeadsAsCanBeCounted) {
  Quantisation q = good();
  q.batch = 1;
  q.mean = nullptr;
  q.infinities = nullptr;
  q.from.data = reinterpret_cast<void*>(std::uintptr_t{1} << 50);
  q.codes.data = reinterpret_cast<void*>(std::uintptr_t{1} << 55);
  q.descales = reinterpret_cast<float*>(std::uintptr_t{1} << 60);
  const auto status_of = [&](int heads) {
    q.heads = heads;
    q.from.stride_head = q.codes.stride_head = q.seq * kDim;
    return plan(q, host_executor()).status();
  };
  const auto expect_most = [&](int heads) {
    EXPECT_TRUE(status_of(heads).ok()) << status_of(heads).message();
    EXPECT_EQ(status_of(heads + 1).code(), kUnsupported) << heads + 1;
  };
  q.seq = std::int64_t{1} << 30;
  q.heads = 1;
  while (quantiser::all_tiles(q) <= INT_MAX / 4) ++q.heads;
  expect_most(q.heads - 1);
  q.seq = 1;
  q.static_descales = true;
  expect_most(INT_MAX / 8);
}

// Room for the mean, and for the sums that it is made of, is asked for where it is wanted.
TEST(Quantisation, AsksForNoMoreThanItNeeds) {
  Quantisation plain = good();
  plain.smooth = false;
  const auto bytes = [](const Quantisation& q) {
    const auto made = plan(q, host_executor());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? made->workspace_bytes() : 0;
  };
  // With the room or without the caller's, who does not smooth needs neither.
  const std::size_t given = bytes(plain);
  plain.mean = nullptr;
  EXPECT_EQ(bytes(plain), given);
  Quantisation smooth = good();
  smooth.smooth = true;
  const std::size_t of_caller = bytes(smooth);
  EXPECT_GT(of_caller, given);
  smooth.mean = nullptr;
  EXPECT_GE(bytes(smooth), of_caller + 2 * kHeads * kDim * sizeof(float));
}

// Memory that ends where other memory begins is apart from it.
TEST(Quantisation, MayTouchOtherMemory) {
  Quantisation q = good();
  with_dots(q);
  q.mean = g_dots + 2 * kHeads * kSeq;
  q.dot_with = g_vectors;
  const auto made = plan(q, host_executor());
  EXPECT_TRUE(made.ok()) << made.status().message();
}

TEST(Quantisation, ServesThreeHeadDims) {
  for (int head_dim = 1; head_dim < 600; ++head_dim) {
    Quantisation q = good();
    q.seq = q.heads = q.batch = 1;
    q.head_dim = head_dim;
    EXPECT_EQ(plan(q, host_executor()).ok(), head_dim == 64 || head_dim == 128 || head_dim == 256)
        << head_dim;
  }
}

// Blocks as many as run at once, or fewer where heads then begin with steps; codes as many steps
// late as the others of a head need, and one more where shared memory holds so many tiles.
TEST(Quantisation, SharesItsTilesOut) {
  struct Sharing {
    int tiles, heads, resident;
    int blocks, steps, lag, lead;
    bool keeps;
  };
  constexpr Sharing kSharings[] = {
      {8, 4, 264, 32, 1, 3, 5, true},      // one step
      {8, 200, 264, 264, 7, 3, 5, true},   // whole heads in a step
      {10, 200, 264, 260, 8, 3, 5, true},  // made whole by four blocks less
      {150, 9, 264, 264, 6, 3, 6, true},   // too many blocks less
      {512, 3, 264, 256, 6, 3, 6, true},   // a head in two steps
      {300, 4, 264, 264, 5, 4, 7, false}, {1024, 2, 264, 256, 8, 5, 8, false},
      {3, 2, 2, 2, 3, 3, 6, true},
  };
  Quantisation q = good();
  q.smooth = true;
  q.batch = 1;
  for (const Sharing& sharing : kSharings) {
    SCOPED_TRACE(std::to_string(sharing.tiles) + " tiles");
    q.seq = 128 * std::int64_t{sharing.tiles} - 5;
    q.heads = sharing.heads;
    const int blocks = quantiser::blocks_of(q, sharing.resident);
    EXPECT_EQ(blocks, sharing.blocks);
    const auto params = quantiser::make_params(q, g_dots, blocks);
    EXPECT_EQ(params.steps, sharing.steps);
    EXPECT_EQ(params.lag, sharing.lag);
    EXPECT_EQ(params.lead, sharing.lead);
    EXPECT_EQ(params.keeps, sharing.keeps);
  }
}

TEST(Quantisation, IsDeclinedByOldDevices) {
  Device device = host_executor();
  device.backend = Backend::kDevice;
  device.name = "made-up";
  device.sm_version = 75;
  const auto made = plan(good(), device);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "quantise needs sm_80 or newer; made-up is sm_75");
  device.sm_version = 80;
  const bool is_compiled = detail::compiled_archs().code_for(80) >= 80;
  const auto ampere = plan(good(), device);
  EXPECT_EQ(ampere.ok(), is_compiled);
  if (!is_compiled) {
    EXPECT_NE(ampere.status().message().find("was not compiled for sm_80 (made-up)"),
              std::string::npos);
  }
  device.sm_version = 89;
  Quantisation blocks = good();
  blocks.block_rows = kKeysOfBlock;
  const auto ada = plan(blocks, device);
  ASSERT_FALSE(ada.ok());
  EXPECT_EQ(ada.status().message(),
            "quantise of blocks of rows needs sm_90 or newer; made-up is sm_89");
}

// Twelve descales: three blocks of each of four heads.
TEST(Quantisation, WritesDescalesOfBlocksToTheirEnd) {
  constexpr std::int64_t kLong = 150;
  const auto at = [](std::uintptr_t place) { return reinterpret_cast<void*>(place << 40); };
  Quantisation q = good();
  q.seq = kLong;
  q.block_rows = kQueriesOfBlock;
  q.from = {at(1), Dtype::kBFloat16, kHeads * kLong * kDim, kLong * kDim, kDim, 1};
  q.codes = {at(2), Dtype::kE4M3, kHeads * kLong * kDim, kLong * kDim, kDim, 1};
  q.descales = static_cast<float*>(at(3));
  q.mean = static_cast<float*>(at(4));
  const auto with_count_behind = [&](int descales) {
    q.infinities = static_cast<std::uint32_t*>(at(3)) + descales;
    return plan(q, host_executor()).status().message();
  };
  EXPECT_NE(with_count_behind(11).find("overlaps"), std::string::npos);
  EXPECT_EQ(with_count_behind(12), "");
}

}  // namespace
}  // namespace fp8_sdpa
