// Which variant plan() takes: by the toggles, else by problem and device.
#include "dispatch/choose.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/variant_impl.hpp"
#include "sm90/sm90.hpp"
#include "sm90/tile_shapes.hpp"

namespace fp8_sdpa::detail {
namespace {

const float g_descales[1] = {1.0F};

struct Sizes {
  int batch, heads;
  std::int64_t seq;
  int head_dim;
};

// Nothing is launched or read: no memory stands behind a problem.
Problem problem_of(const Sizes& sizes, Mask mask = Mask::kNone, Dtype dtype = Dtype::kE4M3) {
  const auto tensor = [&](void* data, Dtype type) {
    const std::int64_t head = sizes.seq * sizes.head_dim;
    return Tensor{data, type, sizes.heads * head, head, sizes.head_dim, 1};
  };
  Problem p;
  p.batch = sizes.batch;
  p.heads_q = p.heads_kv = sizes.heads;
  p.seq_q = p.seq_kv = sizes.seq;
  p.head_dim = sizes.head_dim;
  // Addresses that far apart overlap with nothing.
  constexpr std::uintptr_t kApart = std::uintptr_t{1} << 40;
  p.q = tensor(reinterpret_cast<void*>(kApart), dtype);
  p.k = tensor(reinterpret_cast<void*>(2 * kApart), dtype);
  p.v = tensor(reinterpret_cast<void*>(3 * kApart), dtype);
  p.o = tensor(reinterpret_cast<void*>(4 * kApart), Dtype::kHalf);
  p.descales = {g_descales, g_descales, g_descales};
  p.softmax_scale = 0.125F;
  p.mask = mask;
  return p;
}

Device device_like(int sm_version) {
  Device device = host_executor();
  device.sm_version = sm_version;
  return device;
}

const Variant* chosen(const Problem& problem, int sm_version = 90) {
  const auto variant = choose(problem, device_like(sm_version), /*toggles_chosen=*/false);
  EXPECT_TRUE(variant.ok()) << variant.status().message();
  return variant.ok() ? *variant : nullptr;
}

TEST(Choose, OnHopperTheFastestPredictedIsTaken) {
  const Sizes small{1, 1, 32, 64};
  const Sizes mission{1, 8, 512, 64};
  EXPECT_EQ(chosen(problem_of(small))->name, "sm80_mma");
  EXPECT_EQ(chosen(problem_of(mission))->name, "sm80_mma");
  for (const Sizes& sizes : {Sizes{1, 8, 2048, 64}, Sizes{2, 8, 2048, 64}, Sizes{4, 16, 4096, 64},
                             Sizes{1, 16, 16384, 64}}) {
    EXPECT_EQ(chosen(problem_of(sizes))->family, Family::kSm90) << sizes.seq;
  }
}

// Where none serves, the reason is one's that knows what is asked for.
TEST(Choose, SaysWhyTheVariantsOfItsKindDecline) {
  const auto reason = [](const Problem& p) {
    const auto variant = choose(p, device_like(90), /*toggles_chosen=*/false);
    return variant.ok() ? "" : variant.status().message();
  };
  const std::int32_t lengths[1] = {0};
  Problem ragged = problem_of({1, 2, 300, 48});
  ragged.ragged.seqused_kv = lengths;
  EXPECT_NE(reason(ragged).find("serves head_dim"), std::string::npos) << reason(ragged);
  Problem blocks = problem_of({1, 2, 100, 64});
  blocks.descales.granularity = Granularity::kBlock;
  EXPECT_NE(reason(blocks).find("sm90_block_scales serves more than 128 keys, not 100"),
            std::string::npos)
      << reason(blocks);
}

// Lines of kernels/sm90/README.md, "Which kernel for which problem", that no test below says.
TEST(Choose, SmallProblemsGoWhereTheReadmeSays) {
  struct Line {
    Sizes sizes;
    std::string_view any, causal;
  };
  for (const Line& line : {Line{{1, 1, 32, 64}, "sm80_mma", "sm90_short"},
                           Line{{1, 8, 512, 64}, "sm80_mma", "sm90_kv_split"},
                           Line{{2, 8, 512, 64}, "sm90_kv_split", "sm90_kv_split"},
                           Line{{1, 8, 2048, 64}, "sm90_kv_split2", "sm90_independent"},
                           Line{{1, 8, 512, 128}, "sm90_kv_split", "sm90_kv_split"},
                           Line{{1, 8, 2048, 128}, "sm90_ping_pong2", "sm90_ping_pong"},
                           Line{{1, 1, 1598, 256}, "sm90_independent", "sm90_independent"}}) {
    EXPECT_EQ(chosen(problem_of(line.sizes))->name, line.any) << line.sizes.seq;
    EXPECT_EQ(chosen(problem_of(line.sizes, Mask::kCausal))->name, line.causal) << line.sizes.seq;
  }
}

TEST(Choose, WhatOneFamilyAloneServesGoesThere) {
  for (const std::int64_t seq : {65, 512, 8192}) {  // more rows than decode has
    for (const int head_dim : {128, 256}) {
      EXPECT_EQ(chosen(problem_of({1, 2, seq, head_dim}))->family, Family::kSm90);
    }
    EXPECT_EQ(chosen(problem_of({1, 2, seq, 64}, Mask::kCausal))->family, Family::kSm90);
    EXPECT_EQ(chosen(problem_of({1, 2, seq, 64}, Mask::kNone, Dtype::kE5M2))->name, "sm80_mma");
  }
}

// Few query rows leave multiprocessors idle unless keys are split: over the warpgroups of blocks
// with few rows.
TEST(Choose, AmongHopperKernelsWorkTilesShouldFillTheDevice) {
  const Problem few = problem_of({1, 8, 1024, 64}, Mask::kCausal);
  const Variant* variant = chosen(few);
  constexpr int kMultiprocessors = 132;
  for (const Variant& other : variants()) {
    if (other.impl->predicted_us == nullptr || other.family != Family::kSm90 ||
        !other.supports(few, device_like(90)).ok()) {
      continue;
    }
    EXPECT_LE(variant->impl->predicted_us(few, kMultiprocessors, {}),
              other.impl->predicted_us(few, kMultiprocessors, {}))
        << other.name;
  }
  EXPECT_LE(variant->resources.tile_m, 128) << variant->name;
}

// The fastest kernels sum rounded weights: an LSE of exact ones is not given up for speed, and any
// other has no price.
TEST(Choose, AnLseOfExactSumsIsNotGivenUpForSpeed) {
  struct Fastest {
    int head_dim;
    std::vector<std::string_view> of_all;  // one of them is the fastest
    std::string_view exact;
  };
  for (const Fastest& fastest :
       {Fastest{64, {"sm90_independent", "sm90_pre_transpose"}, "sm90_independent"},
        Fastest{128, {"sm90_ping_pong"}, "sm90_ping_pong"},
        Fastest{256, {"sm90_shared_transpose"}, "sm90_ping_pong"}}) {
    for (const std::int64_t seq : {4096, 16384}) {
      Problem problem = problem_of({1, 16, seq, fastest.head_dim});
      const std::string_view name = chosen(problem)->name;
      EXPECT_NE(std::find(fastest.of_all.begin(), fastest.of_all.end(), name), fastest.of_all.end())
          << name;
      std::vector<float> lse(16 * 16384);
      problem.lse = lse.data();
      EXPECT_EQ(chosen(problem)->name, name) << seq;
      problem.lse_sum = LseSum::kExact;
      EXPECT_EQ(chosen(problem)->name, fastest.exact) << seq;
    }
  }
}

// A variant takes the kernel of the sums that are asked for, or says that it has none.
TEST(Choose, AVariantsKernelIsChosenByTheSums) {
  const auto kernel = [](std::string_view variant, int head_dim, bool exact) {
    const int found = sm90::find_tile_shape(variant, head_dim, exact);
    return found < 0 ? "" : sm90::kTileShapes[found].kernel;
  };
  EXPECT_EQ(kernel("sm90_independent", 64, true), "sm90_independent_d64_exact");
  EXPECT_EQ(kernel("sm90_independent", 64, false), "sm90_independent_d64_rounded");
  EXPECT_EQ(kernel("sm90_kv_split", 128, false), "sm90_kv_split_d128_exact");
  EXPECT_EQ(kernel("sm90_independent", 128, false), "");
  Problem problem = problem_of({1, 16, 4096, 256});
  float lse = 0.0F;
  problem.lse_sum = LseSum::kExact;  // of nothing, as long as no LSE is asked for
  EXPECT_TRUE((*find_variant("sm90_independent"))->supports(problem, device_like(90)).ok());
  problem.lse = &lse;
  EXPECT_EQ((*find_variant("sm90_independent"))->supports(problem, device_like(90)).message(),
            "sm90_independent gives no LSE of exact sums at head_dim 256: its row sums are of "
            "rounded weights");
  problem.head_dim = 128;
  problem.q.stride_seq = problem.k.stride_seq = problem.v.stride_seq = problem.o.stride_seq = 128;
  EXPECT_EQ((*find_variant("sm90_independent"))->supports(problem, device_like(90)).message(),
            "sm90_independent serves head_dim 64, 256, not 128");
}

// Few keys are served by kernels of their own, at every head dim.
TEST(Choose, FewKeysHaveTheirOwnKernel) {
  for (const int head_dim : {128, 256}) {
    EXPECT_EQ(chosen(problem_of({1, 8, 128, head_dim}))->name, "sm90_short");
    EXPECT_NE(chosen(problem_of({1, 8, 129, head_dim}))->name, "sm90_short");
  }
  // Of many heads that fill one tile, but none of many of their own.
  const auto of_16_heads = [](int batch) {
    Problem p = problem_of({batch, 16, 70, 128});
    p.heads_kv = 1;
    p.seq_q = 9;
    p.q.stride_head = p.o.stride_head = 9 * 128;
    p.q.stride_batch = p.o.stride_batch = 16 * 9 * 128;
    return chosen(p)->name;
  };
  EXPECT_EQ(of_16_heads(308), "sm90_packed_short");
  EXPECT_EQ(of_16_heads(8), "sm90_short");
  EXPECT_EQ((*find_variant("sm90_short"))
                ->supports(problem_of({1, 8, 129, 64}), device_like(90))
                .message(),
            "sm90_short serves at most 128 keys, not 129");
  EXPECT_EQ((*find_variant("sm90_kv_split"))
                ->supports(problem_of({1, 8, 128, 64}), device_like(90))
                .message(),
            "sm90_kv_split serves more than 128 keys, not 128");
}

// Transposing V for all takes a while: it pays where many blocks want the same keys.
TEST(Choose, VIsTransposedForAllForLongSequencesAlone) {
  EXPECT_EQ(chosen(problem_of({1, 8, 16384, 256}))->name, "sm90_shared_transpose");
  EXPECT_EQ(chosen(problem_of({8, 8, 256, 256}))->name, "sm90_independent");
  EXPECT_EQ(chosen(problem_of({4, 8, 4096, 256}, Mask::kCausal))->name, "sm90_shared_transpose");
  EXPECT_EQ(chosen(problem_of({8, 8, 1024, 256}, Mask::kCausal))->name, "sm90_independent");
}

// V transposed before lies in a workspace.
TEST(Choose, NobodyTransposesVForAllWithoutAWorkspace) {
  const Problem problem = problem_of({1, 8, 16384, 256});
  const auto without =
      choose(problem, device_like(90), /*toggles_chosen=*/false, {.no_workspace = true});
  ASSERT_TRUE(without.ok()) << without.status().message();
  EXPECT_EQ((*without)->name, "sm90_independent");
}

// Variants differ in their bits: a choice by the whole batch, by the rows beside a row or by the
// keys behind those that it sees would be seen in it.
TEST(Choose, BatchInvariantRowsHaveOneVariant) {
  const PlanOptions invariant{.batch_invariant = true};
  int changes = 0;
  for (const int head_dim : {64, 128, 256}) {
    const auto expected = choose(problem_of({1, 8, 16384, head_dim}), device_like(90),
                                 /*toggles_chosen=*/false, invariant);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      for (const std::int64_t seq : {129, 512, 2048, 65536}) {
        const auto alone = problem_of({1, 8, seq, head_dim}, mask);
        for (const int batch : {1, 2, 3, 16, 200}) {
          const auto many = problem_of({batch, 8, seq, head_dim}, mask);
          const auto variant = choose(many, device_like(90), /*toggles_chosen=*/false, invariant);
          ASSERT_TRUE(variant.ok()) << variant.status().message();
          EXPECT_EQ((*variant)->name, (*expected)->name)
              << batch << " x " << seq << " x " << head_dim;
          if (chosen(many) != chosen(alone)) ++changes;
        }
      }
    }
  }
  EXPECT_GT(changes, 0) << "no batch makes a difference: nothing is asked";
}

// Blocks that may not share rows leave multiprocessors idle, which the choice must know.
TEST(Choose, PredictionsKnowThatRowsAreNotShared) {
  const Problem problem = problem_of({1, 13, 4096, 128});
  const Variant& variant = **find_variant("sm90_ping_pong");
  constexpr int kMultiprocessors = 132;
  const double shared = variant.impl->predicted_us(problem, kMultiprocessors, {});
  EXPECT_GT(variant.impl->predicted_us(problem, kMultiprocessors, {.no_workspace = true}), shared);
  EXPECT_EQ(variant.impl->predicted_us(problem, kMultiprocessors, {.batch_invariant = true}),
            variant.impl->predicted_us(problem, kMultiprocessors, {.no_workspace = true}));
}

struct Measured {
  Sizes sizes;
  Family family;
  double us;  // the family's best on an H200: of sm80 inside a CUDA graph, of sm90 by itself
};

TEST(Choose, PredictionsAreNearWhatWasMeasured) {
  constexpr double kWithin = 0.25;
  constexpr int kMultiprocessors = 132;
  for (const Measured& measured :
       {Measured{{1, 1, 32, 64}, Family::kSm80, 2.6}, Measured{{1, 8, 512, 64}, Family::kSm80, 5.9},
        Measured{{1, 8, 2048, 64}, Family::kSm80, 44.0},
        Measured{{1, 1, 32, 64}, Family::kSm90, 6.0}, Measured{{1, 8, 512, 64}, Family::kSm90, 8.1},
        Measured{{1, 8, 2048, 64}, Family::kSm90, 17.7}}) {
    const Problem problem = problem_of(measured.sizes);
    double best = 0.0;
    for (const Variant& variant : variants()) {
      if (variant.impl->predicted_us == nullptr || variant.family != measured.family ||
          !variant.supports(problem, device_like(90)).ok()) {
        continue;
      }
      const double us = variant.impl->predicted_us(problem, kMultiprocessors, {});
      best = best == 0.0 ? us : std::min(best, us);
    }
    EXPECT_NEAR(best, measured.us, kWithin * measured.us) << measured.sizes.seq;
  }
}

// A step of a server: 64 query heads on 8 KV heads, a query or two of each sequence. One long
// sequence of few heads goes to the kernels that have more rows at once.
TEST(Choose, FewQueriesOnManyKeysAreDecodes) {
  const auto taken = [](int batch, int heads_kv, std::int64_t seq_q, std::int64_t keys, int dim) {
    Problem p = problem_of({batch, heads_kv, keys, dim});
    p.heads_q = 8 * heads_kv;
    p.seq_q = seq_q;
    p.q.stride_seq = p.o.stride_seq = dim;
    p.q.stride_head = p.o.stride_head = seq_q * dim;
    p.q.stride_batch = p.o.stride_batch = p.heads_q * seq_q * dim;
    return chosen(p)->family;
  };
  for (const int dim : {64, 128, 256}) {
    EXPECT_EQ(taken(128, 8, 1, 8192, dim), Family::kDecode) << dim;
    EXPECT_EQ(taken(1, 8, 1, 2048, dim), Family::kDecode) << dim;
    EXPECT_EQ(taken(32, 8, 2, 4096, dim), Family::kDecode) << dim;
    EXPECT_EQ(taken(32, 8, 8, 8192, dim), Family::kSm90) << dim;
    EXPECT_EQ(taken(32, 8, 128, 4096, dim), Family::kSm90) << dim;
  }
  EXPECT_EQ(taken(1, 1, 8, 65536, 128), Family::kSm90);
}

// Where rows of one head would leave much of a tile empty, and the price of a row's own scale is
// less; not where they would not, or where there is one head.
TEST(Choose, FewQueriesOfGroupedHeadsShareTiles) {
  const auto taken = [](int heads_q, int heads_kv, std::int64_t seq_q, std::int64_t keys) {
    Problem p = problem_of({1, heads_kv, keys, 128});
    p.heads_q = heads_q;
    p.seq_q = seq_q;
    p.q.stride_seq = p.o.stride_seq = 128;
    p.q.stride_head = p.o.stride_head = seq_q * 128;
    p.q.stride_batch = p.o.stride_batch = p.heads_q * seq_q * 128;
    return chosen(p)->name;
  };
  EXPECT_EQ(taken(32, 8, 128, 32768), "sm90_packed_gqa");
  EXPECT_EQ(taken(32, 8, 64, 16384), "sm90_packed_gqa2");
  EXPECT_EQ(taken(64, 8, 32, 8192), "sm90_packed_gqa2");
  EXPECT_EQ(taken(8, 8, 128, 32768), "sm90_ping_pong2");
  EXPECT_EQ(taken(32, 8, 192 * 20, 192 * 20), "sm90_ping_pong");
}

TEST(Choose, OnOtherDevicesSm80IsTakenWhereItServes) {
  for (const int sm_version : {80, 86, 89, 100}) {
    for (const std::int64_t seq : {32, 4096}) {
      EXPECT_EQ(chosen(problem_of({1, 8, seq, 64}), sm_version)->name, "sm80_mma");
    }
  }
}

TEST(Choose, TogglesThatSomeoneChoseComeFirst) {
  const Problem problem = problem_of({1, 8, 2048, 64});
  const auto variant = choose(problem, device_like(90), /*toggles_chosen=*/true);
  ASSERT_TRUE(variant.ok());
  EXPECT_EQ((*variant)->name, stage_c_name(configured_toggles()));
  // What they do not serve is chosen for as if nobody had.
  const Problem causal = problem_of({1, 8, 2048, 64}, Mask::kCausal);
  const auto other = choose(causal, device_like(90), /*toggles_chosen=*/true);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(*other, chosen(causal));
}

TEST(Choose, NobodyServesIsSaidWithTheFirstReason) {
  const Problem problem = problem_of({1, 2, 64, 32});
  for (const bool toggles : {false, true}) {
    const auto variant = choose(problem, device_like(90), toggles);
    ASSERT_FALSE(variant.ok());
    EXPECT_EQ(variant.status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(variant.status().message(),
              "no variant serves this problem: stage_c serves head_dim 64, not 32");
  }
  Problem invalid = problem;
  invalid.batch = 0;
  const auto variant = choose(invalid, device_like(90), false);
  EXPECT_EQ(variant.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(variant.status().message(), "batch is 0; it must be at least 1");
}

}  // namespace
}  // namespace fp8_sdpa::detail
