// rebind(): which problems a plan is bound to anew, and which are declined. That such a plan gives
// the same bits is asked by every gate (reference/judge/check.cpp).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/unquantised.hpp"
#include "tests/host/kernels/declined.hpp"
#include "tests/host/kernels/made_up.hpp"

namespace fp8_sdpa::rebinding {
namespace {

using tests::address;
using tests::kPointers;
using tests::move_to;

/// Sequences in pages, with everything that a problem may have but packed keys.
Problem in_pages() {
  Problem p = tests::made_up(2, 4, 2, 3, 100, 64);
  p.ragged.total_q = 6;
  p.q.stride_head = p.o.stride_head = p.ragged.total_q * 64;
  p.pages = {nullptr, 9, 16, 7};
  p.k.stride_batch = p.v.stride_batch = 2 * 16 * 64;
  p.k.stride_head = p.v.stride_head = 16 * 64;
  for (const int given : {tests::kFault, tests::kOffsetsQ, tests::kLengths, tests::kTable}) {
    move_to(p, given, (std::uintptr_t{1} + given) << 50);
  }
  return p;
}

Plan planned(const Problem& p) {
  const auto made = plan(p, host_executor());
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *made;
}

TEST(Rebind, TakesOtherAddressesAndAnotherScale) {
  Problem p = in_pages();
  const Plan made = planned(p);
  Plan bound = made;
  for (int i = 0; i < kPointers; ++i) {
    if (address(p, i) != 0) move_to(p, i, address(p, i) + 64);
  }
  p.softmax_scale = 0.5F;
  const Status status = rebind(bound, p);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(bound.problem(), p);
  EXPECT_EQ(bound.variant_name(), made.variant_name());
  EXPECT_EQ(bound.workspace_bytes(), made.workspace_bytes());
  p.softmax_scale = 0.0F;
  EXPECT_TRUE(rebind(bound, p).ok());
  EXPECT_EQ(bound.problem().softmax_scale, 0.125F);
}

TEST(Rebind, TakesAnotherScaleOfTheOutput) {
  Problem p = in_pages();
  p.o.dtype = Dtype::kE4M3;
  p.o_scale = reinterpret_cast<const float*>(std::uintptr_t{30} << 50);
  Plan bound = planned(p);
  ++p.o_scale;
  const Status status = rebind(bound, p);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(bound.problem().o_scale, p.o_scale);
  p.o_scale = nullptr;
  EXPECT_EQ(rebind(bound, p).code(), StatusCode::kInvalidArgument);
}

TEST(Rebind, AsksOfAddressesWhatPlanDoesAndThenLeavesThePlanAlone) {
  const Problem before = in_pages();
  Plan bound = planned(before);
  const detail::PlanState state = bound.state();
  Problem p = before;
  for (const int given : {0, 2, 3}) move_to(p, given, address(p, given) + 64);
  move_to(p, 1, address(p, 1) + 8);
  p.softmax_scale = 0.5F;
  const Status status = rebind(bound, p);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), plan(p, host_executor()).status().message());
  EXPECT_EQ(bound.problem(), planned(before).problem());
  EXPECT_EQ(bound.state().bytes, state.bytes);
  EXPECT_EQ(bound.workspace_bytes(), state.workspace_bytes);
}

using Bad = tests::Declined<Problem>;
using tests::kInvalid;

class OtherProblem : public testing::TestWithParam<Bad> {};

TEST_P(OtherProblem, IsDeclined) {
  Problem p = in_pages();
  Plan made = planned(p);
  GetParam().change(p);
  tests::expect_declined(GetParam(), rebind(made, p));
}

constexpr char kDiffers[] = "the problem differs from the plan's in more than addresses";
#define FP8_SDPA_OTHER(NAME, CHANGE)                       \
  Bad {                                                    \
#NAME, [](Problem & p) { CHANGE; }, kInvalid, kDiffers \
  }
INSTANTIATE_TEST_SUITE_P(
    Rebind, OtherProblem,
    testing::Values(FP8_SDPA_OTHER(Batch, p.batch = 1), FP8_SDPA_OTHER(HeadsQ, p.heads_q = 2),
                    FP8_SDPA_OTHER(HeadsKv, p.heads_kv = 1), FP8_SDPA_OTHER(SeqQ, p.seq_q = 2),
                    FP8_SDPA_OTHER(SeqKv, p.seq_kv = 99), FP8_SDPA_OTHER(Dim, p.head_dim = 128),
                    FP8_SDPA_OTHER(StrideBatch, p.k.stride_batch += 64),
                    FP8_SDPA_OTHER(StrideHead, p.q.stride_head += 16),
                    FP8_SDPA_OTHER(StrideSeq, p.o.stride_seq += 16),
                    FP8_SDPA_OTHER(StrideDim, p.v.stride_dim = 128),
                    FP8_SDPA_OTHER(Input, p.q.dtype = Dtype::kE5M2),
                    FP8_SDPA_OTHER(Output, p.o.dtype = Dtype::kBFloat16),
                    FP8_SDPA_OTHER(Mask, p.mask = Mask::kCausal),
                    FP8_SDPA_OTHER(LseSum, p.lse_sum = LseSum::kExact),
                    FP8_SDPA_OTHER(TotalQ, p.ragged.total_q = 5),
                    FP8_SDPA_OTHER(PageSize, p.pages.page_size = 32),
                    FP8_SDPA_OTHER(MaxPages, p.pages.max_pages = 8),
                    FP8_SDPA_OTHER(Pages, p.pages.pages = 10),
                    FP8_SDPA_OTHER(NoLse, p.lse = nullptr),
                    FP8_SDPA_OTHER(NoFault, p.fault = nullptr),
                    FP8_SDPA_OTHER(NoLengths, p.ragged.seqused_kv = nullptr),
                    FP8_SDPA_OTHER(NoOffsets, p.ragged.cu_seqlens_q = nullptr),
                    FP8_SDPA_OTHER(NoTable, p.pages.block_table = nullptr),
                    FP8_SDPA_OTHER(NoQ, p.q.data = nullptr),
                    FP8_SDPA_OTHER(PackedKeys, p.ragged.cu_seqlens_kv = p.ragged.cu_seqlens_q)),
    tests::name_of<Problem>);
#undef FP8_SDPA_OTHER

TEST(Rebind, WantsAPlan) {
  Plan none;
  EXPECT_EQ(rebind(none, in_pages()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rebind(none, Problem()).code(), StatusCode::kInvalidArgument);
}

UnquantisedProblem unquantised() {
  UnquantisedProblem problem{.attention = tests::made_up(1, 4, 2, 70, 90, 64)};
  Problem& p = problem.attention;
  for (Tensor* t : {&p.q, &p.k, &p.v}) t->dtype = Dtype::kBFloat16;
  return problem;
}

TEST(Rebind, TakesAnUnquantisedProblemToo) {
  UnquantisedProblem problem = unquantised();
  const auto made = plan(problem, host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  Problem& p = problem.attention;
  for (const int i : {0, 1, 2, 3, 4}) move_to(p, i, address(p, i) + 64);
  p.descales = {};  // nobody looks at them
  problem.seed = 5;
  UnquantisedPlan bound = *made;
  const Status status = rebind(bound, problem);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(bound.problem().attention, p);
  EXPECT_EQ(bound.problem().seed, 5U);
  EXPECT_EQ(bound.workspace_bytes(), made->workspace_bytes());
  EXPECT_EQ(bound.attention().problem().o.data, p.o.data);
  const Problem taken = p;
  move_to(p, 0, address(p, 0) + 8);
  EXPECT_EQ(rebind(bound, problem).message(), plan(problem, host_executor()).status().message());
  EXPECT_EQ(bound.problem().attention, taken);
}

TEST(Rebind, DeclinesAnotherUnquantisedProblem) {
  const auto made = plan(unquantised(), host_executor());
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto expect_declined = [&](const auto& change) {
    UnquantisedProblem problem = unquantised();
    UnquantisedPlan bound = *made;
    change(problem);
    EXPECT_EQ(rebind(bound, problem).code(), StatusCode::kInvalidArgument);
  };
  expect_declined([](UnquantisedProblem& p) { p.rotate = false; });
  expect_declined([](UnquantisedProblem& p) { p.smooth = false; });
  expect_declined([](UnquantisedProblem& p) { p.attention.seq_q = 71; });
  expect_declined([](UnquantisedProblem& p) { p.attention.lse = nullptr; });
  expect_declined([](UnquantisedProblem& p) { p.granularity = Granularity::kBlock; });
}

}  // namespace
}  // namespace fp8_sdpa::rebinding
