// What plan() says of an append that it declines, and what it takes from both sides of each limit.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <string>

#include "fp8_sdpa/append.hpp"
#include "tests/host/kernels/declined.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::append_api {
namespace {

using tests::kInvalid;
using tests::kUnsupported;
using Bad = tests::Declined<Append>;

template <class T>
T* at(int which) {
  constexpr int kApart = 50;
  return reinterpret_cast<T*>((std::uintptr_t{1} + which) << kApart);
}
template <class T>
T* after(const void* pointer, std::int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) +
                              static_cast<std::uintptr_t>(bytes));
}

constexpr int kTokens = 5, kHeads = 2, kDim = 64, kPages = 7, kPageSize = 16;
constexpr std::int64_t kPage = std::int64_t{kPageSize} * kHeads * kDim;

Append good() {
  Append a;
  a.tokens = kTokens;
  a.heads = kHeads;
  a.head_dim = kDim;
  a.k = {at<void>(0), Dtype::kBFloat16, 7, kDim, kHeads * kDim, 1};
  a.v = a.k;
  a.v.data = at<void>(1);
  a.k_cache = {at<void>(2), Dtype::kE4M3, kPage, kDim, kHeads * kDim, 1};
  a.v_cache = a.k_cache;
  a.v_cache.data = at<void>(3);
  a.pages = kPages;
  a.page_size = kPageSize;
  a.slots = at<std::int64_t>(4);
  a.descale_k = at<float>(5);
  a.descale_v = at<float>(6);
  a.rotary = {.cos_sin = at<float>(7),
              .positions = at<std::int64_t>(8),
              .max_positions = 100,
              .dim = 32,
              .interleaved = false};
  a.fault = at<std::uint32_t>(9);
  return a;
}

class BadAppend : public testing::TestWithParam<Bad> {};

TEST_P(BadAppend, IsDeclinedWithTheReason) {
  Append a = good();
  const auto made = plan(a, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  GetParam().change(a);
  tests::expect_declined(GetParam(), plan(a, host_executor()));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, BadAppend,
    testing::Values(
        Bad{"NoTokens", [](Append& a) { a.tokens = 0; }, kInvalid,
            "tokens is 0; it must be at least 1"},
        Bad{"NoHeads", [](Append& a) { a.heads = 0; }, kInvalid, "heads is 0; it must be"},
        Bad{"NoPages", [](Append& a) { a.pages = 0; }, kInvalid, "pages is 0; it must be"},
        Bad{"NoPageSize", [](Append& a) { a.page_size = 0; }, kInvalid, "page_size is 0; it must"},
        Bad{"NoDim", [](Append& a) { a.head_dim = 0; }, kUnsupported,
            "head_dim is 0; multiples of 16 up to 256 are served"},
        Bad{"OddDim", [](Append& a) { a.head_dim = 72; }, kUnsupported, "head_dim is 72; multip"},
        Bad{"LargeDim", [](Append& a) { a.head_dim = 272; }, kUnsupported, "head_dim is 272; mu"},
        Bad{"ManyRows",
            [](Append& a) {
              a.pages = 1 << 20;
              a.page_size = 1 << 11;
            },
            kUnsupported, "pages * page_size is 1048576 * 2048; below 2^31 is served"},
        Bad{"ManyHeads", [](Append& a) { a.heads = (1 << 20) + 1; }, kUnsupported,
            "heads is 1048577; at most 2^20 is served"},
        Bad{"NoRotaryDim", [](Append& a) { a.rotary.dim = 0; }, kInvalid,
            "rotary.dim is 0; it must be a multiple of 16 up to head_dim, 64"},
        Bad{"OddRotaryDim", [](Append& a) { a.rotary.dim = 24; }, kInvalid, "rotary.dim is 24"},
        Bad{"LargeRotaryDim", [](Append& a) { a.rotary.dim = 80; }, kInvalid, "rotary.dim is 80"},
        Bad{"NoPositions", [](Append& a) { a.rotary.max_positions = 0; }, kInvalid,
            "rotary.max_positions is 0; it must be 1 to 2^40"},
        Bad{"ManyPositions",
            [](Append& a) { a.rotary.max_positions = (std::int64_t{1} << 40) + 1; }, kInvalid,
            "rotary.max_positions is 1099511627777"},
        Bad{"RotaryDimAlone",
            [](Append& a) {
              a.rotary = {};
              a.rotary.dim = 16;
            },
            kInvalid, "rotary.cos_sin is null, but rotary.positions, max_positions or dim"},
        Bad{"RotaryPositionsAlone",
            [](Append& a) {
              const auto* const positions = a.rotary.positions;
              a.rotary = {};
              a.rotary.positions = positions;
            },
            kInvalid, "rotary.cos_sin is null"},
        Bad{"RotaryCountAlone",
            [](Append& a) {
              a.rotary = {};
              a.rotary.max_positions = 1;
            },
            kInvalid, "rotary.cos_sin is null"},
        Bad{"NegativeRotaryCountAlone",
            [](Append& a) {
              a.rotary = {};
              a.rotary.max_positions = -1;
            },
            kInvalid, "rotary.cos_sin is null"},
        Bad{"NegativeRotaryDimAlone",
            [](Append& a) {
              a.rotary = {};
              a.rotary.dim = -16;
            },
            kInvalid, "rotary.cos_sin is null"}),
    tests::name_of<Append>);

INSTANTIATE_TEST_SUITE_P(
    Memory, BadAppend,
    testing::Values(
        Bad{"Fp8K", [](Append& a) { a.k.dtype = Dtype::kE4M3; }, kInvalid,
            "k.dtype is e4m3; it must be bf16, half or float"},
        Bad{"NoFormat", [](Append& a) { a.k.dtype = a.v.dtype = static_cast<Dtype>(9); }, kInvalid,
            "k.dtype is unknown; it must be bf16, half or float"},
        Bad{"OtherV", [](Append& a) { a.v.dtype = Dtype::kHalf; }, kInvalid,
            "v.dtype is half; it must be that of k, bf16"},
        Bad{"HalfCache", [](Append& a) { a.k_cache.dtype = Dtype::kHalf; }, kInvalid,
            "k_cache.dtype is half; it must be e4m3 or e5m2"},
        Bad{"OtherVCache", [](Append& a) { a.v_cache.dtype = Dtype::kE5M2; }, kInvalid,
            "v_cache.dtype is e5m2; it must be that of k_cache, e4m3"},
        Bad{"NoK", [](Append& a) { a.k.data = nullptr; }, kInvalid, "k.data is null"},
        Bad{"MisalignedV", [](Append& a) { a.v.data = after<void>(a.v.data, 8); }, kInvalid,
            "v.data is not aligned to 16 bytes"},
        Bad{"StrideOfK", [](Append& a) { a.k.stride_seq = 68; }, kInvalid,
            "k.stride_seq is 68 elements"},
        Bad{"DimOfV", [](Append& a) { a.v.stride_dim = 16; }, kInvalid, "v.stride_dim is 16"},
        Bad{"StrideOfVCache", [](Append& a) { a.v_cache.stride_head = 8; }, kInvalid,
            "v_cache.stride_head is 8 elements"},
        Bad{"OverlappingRows", [](Append& a) { a.k_cache.stride_seq = kDim; }, kInvalid,
            "k_cache.stride_seq is 64; output rows would overlap"},
        Bad{"OverlappingPages", [](Append& a) { a.v_cache.stride_batch = kPage - 16; }, kInvalid,
            "v_cache.stride_batch is 2032; output rows would overlap"},
        Bad{"NoSlots", [](Append& a) { a.slots = nullptr; }, kInvalid, "slots is null"},
        Bad{"MisalignedSlots", [](Append& a) { a.slots = after<std::int64_t>(a.slots, 4); },
            kInvalid, "slots is not aligned to 8 bytes"},
        Bad{"NoDescale", [](Append& a) { a.descale_k = nullptr; }, kInvalid, "descale_k is null"},
        Bad{"MisalignedDescale", [](Append& a) { a.descale_v = after<float>(a.descale_v, 2); },
            kInvalid, "descale_v is not aligned to 4 bytes"},
        Bad{"MisalignedAngles",
            [](Append& a) { a.rotary.cos_sin = after<float>(a.rotary.cos_sin, 8); }, kInvalid,
            "rotary.cos_sin is not aligned to 16 bytes"},
        Bad{"NoArrayOfPositions", [](Append& a) { a.rotary.positions = nullptr; }, kInvalid,
            "rotary.positions is null"},
        Bad{"MisalignedFault", [](Append& a) { a.fault = after<std::uint32_t>(a.fault, 2); },
            kInvalid, "fault is not aligned to 4 bytes"},
        Bad{"OneCache", [](Append& a) { a.v_cache.data = a.k_cache.data; }, kInvalid,
            "v_cache overlaps k_cache; it needs memory of its own, or its strides and the places "
            "between its rows, heads or pages"},
        Bad{"FaultInTheLastSlot",
            [](Append& a) { a.fault = after<std::uint32_t>(a.slots, 8 * kTokens - 4); }, kInvalid,
            "fault overlaps slots"},
        Bad{"FaultInTheLastDescale",
            [](Append& a) { a.fault = after<std::uint32_t>(a.descale_k, 4 * kHeads - 4); },
            kInvalid, "fault overlaps descale_k"},
        Bad{"FaultInTheLastAngle",
            [](Append& a) { a.fault = after<std::uint32_t>(a.rotary.cos_sin, 4 * 3200 - 4); },
            kInvalid, "fault overlaps rotary.cos_sin"},
        Bad{"FaultInTheLastPosition",
            [](Append& a) { a.fault = after<std::uint32_t>(a.rotary.positions, 8 * kTokens - 4); },
            kInvalid, "fault overlaps rotary.positions"},
        Bad{"FaultInTheCacheOfV",
            [](Append& a) { a.fault = after<std::uint32_t>(a.v_cache.data, kPages * kPage - 4); },
            kInvalid, "fault overlaps v_cache"},
        Bad{"CacheOfKInV",
            [](Append& a) {
              a.k_cache.data = after<void>(a.v.data, 2 * kTokens * kHeads * kDim - 16);
            },
            kInvalid, "k_cache overlaps v"},
        Bad{"CacheOfVInK",
            [](Append& a) { a.v_cache.data = after<void>(a.k.data, 16 - kPages * kPage); },
            kInvalid, "v_cache overlaps k"}),
    tests::name_of<Append>);

void expect_taken(const Append& a, bool taken) {
  const auto made = plan(a, host_executor());
  EXPECT_EQ(made.ok(), taken) << made.status().message();
}

TEST(CheckAppend, TouchingIsLegal) {
  Append a = good();
  a.fault = after<std::uint32_t>(a.slots, 8 * kTokens);
  expect_taken(a, true);
  a.v_cache.data = after<void>(a.k_cache.data, kPages * kPage);
  expect_taken(a, true);
  a.k_cache.data = after<void>(a.k.data, 2 * kTokens * kHeads * kDim);
  expect_taken(a, true);
  a = good();
  a.rotary = {};
  a.fault = nullptr;
  expect_taken(a, true);
}

// K and V of a page, of a row or of a head side by side, in any order; not a step closer.
TEST(CheckAppend, CachesMayBeHalvesOfOneTensor) {
  for (const int axis : {0, 1, 2}) {
    for (const bool v_first : {false, true}) {
      Append a = good();
      const std::int64_t row = kHeads * kDim;
      const std::int64_t half = axis == 0 ? kPage : axis == 1 ? row : kDim;
      Tensor cache = a.k_cache;
      cache.stride_batch = 2 * kPage;
      if (axis > 0) cache.stride_seq = 2 * row;
      if (axis > 1) cache.stride_head = 2 * kDim;
      a.k_cache = a.v_cache = cache;
      Tensor& second = v_first ? a.k_cache : a.v_cache;
      second.data = after<void>(cache.data, half);
      expect_taken(a, true);
      second.data = after<void>(cache.data, half - 16);
      expect_taken(a, false);
      second.data = after<void>(cache.data, half);
      for (const auto stride : {&Tensor::stride_batch, &Tensor::stride_head, &Tensor::stride_seq}) {
        Append other = a;
        Tensor& changed = v_first ? other.k_cache : other.v_cache;
        changed.*stride += 16 * kPage;
        expect_taken(other, false);
      }
    }
  }
}

TEST(CheckAppend, LimitsAreServed) {
  Append a = good();
  a.heads = 1;
  a.head_dim = a.rotary.dim = 16;
  a.tokens = a.pages = a.page_size = 1;
  expect_taken(a, true);
  a.k.stride_seq = 3;  // of one token: not looked at
  expect_taken(a, true);
  a = good();
  a.rotary.max_positions = std::int64_t{1} << 40;
  a.rotary.cos_sin = after<float>(a.fault, 64);
  expect_taken(a, true);
  a = good();
  a.pages = (1 << 20) - 1;
  a.page_size = 1 << 11;
  a.k_cache.stride_batch = a.v_cache.stride_batch = std::int64_t{a.page_size} * kHeads * kDim;
  expect_taken(a, true);
}

TEST(CheckAppend, SaysWhatADeviceLacks) {
  const auto made = plan(good(), tests::made_up_device(75));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "append needs sm_80 or newer; a made-up device is sm_75");
}

TEST(Append, TakesACacheOfAsManyRowsAsAnIntCounts) {
  Append a = good();
  a.pages = 1;
  a.page_size = INT_MAX;
  const auto made = plan(a, host_executor());
  EXPECT_TRUE(made.ok()) << made.status().message();
}

}  // namespace
}  // namespace fp8_sdpa::append_api
