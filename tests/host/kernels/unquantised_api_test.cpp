// What plan() says of a problem before its quantisation that it declines, and what memory it wants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/quantise.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "tests/host/kernels/declined.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::unquantised_api {
namespace {

constexpr int kRows = 4 * 150 * 64;  // of 2 batches of 2 heads
alignas(256) std::uint16_t g_q[kRows], g_k[kRows], g_v[kRows], g_o[kRows];
alignas(256) float g_lse[4 * 150];

UnquantisedProblem good() {
  UnquantisedProblem problem;
  Problem& p = problem.attention;
  p.batch = p.heads_q = p.heads_kv = 2;
  p.seq_q = p.seq_kv = 150;
  p.head_dim = 64;
  const auto view = [](std::uint16_t* data) {
    return Tensor{data, Dtype::kBFloat16, 2 * 150 * 64, 150 * 64, 64, 1};
  };
  p.q = view(g_q);
  p.k = view(g_k);
  p.v = view(g_v);
  p.o = view(g_o);
  p.lse = g_lse;
  return problem;
}

using Bad = tests::Declined<Problem>;
using tests::kInvalid;
using tests::kUnsupported;

class BadUnquantised : public testing::TestWithParam<Bad> {};

TEST_P(BadUnquantised, IsDeclinedWithTheReason) {
  UnquantisedProblem problem = good();
  GetParam().change(problem.attention);
  const auto made = plan(problem, host_executor());
  tests::expect_declined(GetParam(), made);
}

INSTANTIATE_TEST_SUITE_P(
    Api, BadUnquantised,
    testing::Values(
        Bad{"NoBatch", [](Problem& p) { p.batch = 0; }, kInvalid, "batch is 0; it must be"},
        Bad{"NoHeadsQ", [](Problem& p) { p.heads_q = 0; }, kInvalid, "heads_q is 0"},
        Bad{"NoHeadsKv", [](Problem& p) { p.heads_kv = 0; }, kInvalid, "heads_kv is 0"},
        Bad{"NoRows", [](Problem& p) { p.seq_q = 0; }, kInvalid, "seq_q is 0"},
        Bad{"NoKeys", [](Problem& p) { p.seq_kv = -1; }, kInvalid, "seq_kv is -1"},
        Bad{"NoDim", [](Problem& p) { p.head_dim = 0; }, kInvalid, "head_dim is 0"},
        Bad{"Groups", [](Problem& p) { p.heads_q = 3; }, kInvalid,
            "heads_q is 3; it must be a multiple of heads_kv, 2"},
        Bad{"LargeQ", [](Problem& p) { p.seq_q = (std::int64_t{1} << 38) + 1; }, kUnsupported,
            "q has 2 * 2 * 274877906945 * 64 elements; at most 2^46 are served"},
        Bad{"LargeByItsHeads",
            [](Problem& p) {
              p.heads_q = 1 << 20;
              p.seq_q = 1 << 20;
            },
            kUnsupported, "q has 2 * 1048576 * 1048576 * 64 elements; at most 2^46 are served"},
        Bad{"LargeK",
            [](Problem& p) {
              p.batch = 1 << 30;
              p.heads_q = p.heads_kv = 1 << 15;
            },
            kUnsupported, "elements; at most 2^46"},
        Bad{"LargeKeys", [](Problem& p) { p.seq_kv = (std::int64_t{1} << 38) + 1; }, kUnsupported,
            "k has 2 * 2 * 274877906945"},
        Bad{"LongQ", [](Problem& p) { p.seq_q = (std::int64_t{1} << 30) + 1; }, kUnsupported,
            "q: seq is 1073741825"},
        Bad{"HeadDim", [](Problem& p) { p.head_dim = 96; }, kUnsupported,
            "q: head_dim is 96; 64, 128 and 256 are served"},
        Bad{"Fp8", [](Problem& p) { p.k.dtype = Dtype::kE4M3; }, kInvalid,
            "k: from.dtype is e4m3; it must be bf16, half or float"},
        Bad{"NullV", [](Problem& p) { p.v.data = nullptr; }, kInvalid, "v: from.data is null"},
        Bad{"NullO", [](Problem& p) { p.o.data = nullptr; }, kInvalid, "o.data is null"},
        Bad{"LseInO", [](Problem& p) { p.lse = reinterpret_cast<float*>(g_o); }, kInvalid,
            "overlaps"},
        Bad{"Output", [](Problem& p) { p.o.dtype = Dtype::kFloat; }, kInvalid, "o.dtype is float"}),
    tests::name_of<Problem>);

TEST(Unquantised, Int8WantsVIn16Bits) {
  UnquantisedProblem problem = good();
  problem.precision = Precision::kInt8;
  problem.attention.v.dtype = Dtype::kFloat;
  const auto made = plan(problem, host_executor());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(),
            "v.dtype is float; with precision int8 it must be half or bf16");
}

TEST(Unquantised, WantsAWorkspace) {
  const UnquantisedProblem problem = good();
  const auto none = plan(problem, host_executor(), nullptr, {.no_workspace = true});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "PlanOptions::no_workspace is set; codes need a workspace");
  const auto made = plan(problem, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  // Codes, and more.
  EXPECT_GT(made->workspace_bytes(), 3U * kRows);
  EXPECT_LT(made->workspace_bytes(), 4U * kRows);
  const Status null = forward(*made, nullptr, nullptr);
  EXPECT_EQ(null.message(), "workspace is null; this problem needs " +
                                std::to_string(made->workspace_bytes()) +
                                " bytes (UnquantisedPlan::workspace_bytes)");
  EXPECT_EQ(forward(*made, reinterpret_cast<char*>(g_o) + 16, nullptr).message(),
            "workspace is not aligned to 256 bytes");
}

// Codes and descales, the mean and the dot products, and the workspace of the step that needs most:
// whose quantisation that is depends on the lengths.
TEST(Unquantised, HasRoomForEveryStep) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  for (const auto& [seq_q, seq_kv] : {std::pair{150, 20000}, {20000, 150}}) {
    for (const auto& [smooth, granularity] : {std::pair{false, Granularity::kHead},
                                              {true, Granularity::kHead},
                                              {false, Granularity::kBlock},
                                              {true, Granularity::kBlock}}) {
      const bool blocks = granularity == Granularity::kBlock;
      if (blocks && !find_variant("sm90_block_scales").ok()) continue;  // a build of some kernels
      UnquantisedProblem problem = good();
      Problem& p = problem.attention;
      problem.smooth = smooth;
      problem.granularity = granularity;
      p.seq_q = seq_q;
      p.seq_kv = seq_kv;
      for (const auto& [tensor, seq] :
           {std::pair{&p.q, seq_q}, {&p.k, seq_kv}, {&p.v, seq_kv}, {&p.o, seq_q}}) {
        tensor->stride_head = std::int64_t{seq} * 64;
        tensor->stride_batch = 2 * tensor->stride_head;
      }
      p.o.data = reinterpret_cast<void*>(std::uintptr_t{1} << 50);  // room enough
      p.lse = reinterpret_cast<float*>(std::uintptr_t{1} << 51);
      const auto made = plan(problem, host_executor());
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_EQ(made->attention().problem().descales.granularity, granularity);
      std::size_t most = made->attention().workspace_bytes();
      std::size_t tensors = 0;
      for (const auto& [tensor, seq, is_k] :
           {std::tuple{&p.q, seq_q, false}, {&p.k, seq_kv, true}, {&p.v, seq_kv, false}}) {
        Quantisation q;
        q.batch = q.heads = 2;
        q.seq = seq;
        q.head_dim = 64;
        q.from = q.codes = *tensor;
        q.codes.dtype = Dtype::kE4M3;
        q.codes.data = reinterpret_cast<void*>(std::uintptr_t{1} << 52);
        q.descales = reinterpret_cast<float*>(std::uintptr_t{1} << 54);
        if (blocks) q.block_rows = tensor == &p.q ? kQueriesOfBlock : kKeysOfBlock;
        const int rows = blocks ? q.block_rows : seq;
        const auto descales = static_cast<std::size_t>(4 * ((seq + rows - 1) / rows));
        q.smooth = is_k && smooth;
        if (q.smooth) q.mean = reinterpret_cast<float*>(std::uintptr_t{1} << 53);
        const auto step = plan(q, host_executor());
        ASSERT_TRUE(step.ok()) << step.status().message();
        most = std::max(most, step->workspace_bytes());
        tensors += aligned(std::size_t{4} * static_cast<std::size_t>(seq) * 64) +
                   aligned(descales * sizeof(float));
      }
      if (smooth) {
        if (!blocks) tensors += aligned(4 * 64 * sizeof(float));
        tensors += aligned(std::size_t{4} * static_cast<std::size_t>(seq_q) * sizeof(float));
      }
      EXPECT_EQ(made->workspace_bytes(), tensors + most) << seq_q << " x " << seq_kv;
    }
  }
}

UnquantisedProblem of_length(std::int64_t seq, Granularity granularity) {
  UnquantisedProblem problem{.attention = tests::made_up(1, 16, 16, seq, seq, 64)};
  Problem& p = problem.attention;
  for (Tensor* tensor : {&p.q, &p.k, &p.v}) tensor->dtype = Dtype::kBFloat16;
  problem.granularity = granularity;
  return problem;
}
Granularity granularity_of(const UnquantisedPlan& made) {
  return made.attention().problem().descales.granularity;
}

// What quantising takes on an H200 is what the library says: us of a call, and of a megabyte.
TEST(Unquantised, TakesTheGranularityThatIsPredictedToBeFaster) {
  if (!find_variant("sm90_block_scales").ok()) return;  // a build of some kernels
  int of_blocks = 0;
  int all = 0;
  for (std::int64_t seq = 129; seq < 40'000; seq += 1 + seq / 40, ++all) {
    const auto made = plan(of_length(seq, Granularity::kBlock), host_executor());
    ASSERT_TRUE(made.ok()) << made.status().message();
    Problem codes = tests::made_up(1, 16, 16, seq, seq, 64);
    const auto us = [&](Granularity granularity, double of_call, double of_megabyte) {
      codes.descales.granularity = granularity;
      const double megabytes = 3e-6 * 16 * static_cast<double>(seq) * 64 * (2 + 1);
      return detail::predictions(codes, host_executor(), {}).front().us + of_call +
             of_megabyte * megabytes;
    };
    const bool faster =
        us(Granularity::kBlock, 4.0, 0.365) < 0.99 * us(Granularity::kHead, 20.0, 0.47);
    EXPECT_EQ(granularity_of(*made) == Granularity::kBlock, faster) << seq;
    of_blocks += faster ? 1 : 0;
    const auto asked = plan(of_length(seq, Granularity::kHead), host_executor());
    ASSERT_TRUE(asked.ok()) << asked.status().message();
    EXPECT_EQ(granularity_of(*asked), Granularity::kHead) << seq;
  }
  EXPECT_GT(of_blocks, 0);
  EXPECT_LT(of_blocks, all);
}

// Of V's codes, of Q's and K's, and of P: 5.3 % of normal inputs.
TEST(Unquantised, TheErrorToExpectIsOfQuantisingToo) {
  const auto made = plan(of_length(1024, Granularity::kHead), host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_NEAR(made->expected_error(), 0.0530, 0.0003);
}

TEST(Unquantised, RunsTheVariantThatIsGiven) {
  for (const char* name : {"sm90_kv_split", "sm90_block_scales"}) {
    const auto variant = find_variant(name);
    if (!variant.ok()) continue;  // a build of some kernels
    for (const Granularity granularity : {Granularity::kHead, Granularity::kBlock}) {
      const auto made = plan(of_length(600, granularity), host_executor(), *variant);
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_EQ(&made->attention().variant(), *variant);
    }
  }
}

// As large as is served.
TEST(Unquantised, CountsElementsWithoutOverflow) {
  UnquantisedProblem problem = good();
  problem.attention.seq_q = std::int64_t{1} << 38;
  const auto made = plan(problem, host_executor());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "q: seq is 274877906944; at most 2^30 is served");
}

}  // namespace
}  // namespace fp8_sdpa::unquantised_api
