// Tiles of query rows that several blocks share (sm90/work/schedule.hpp): their KV splits are
// written to the workspace and merged by a second kernel (sm90/output/merge_splits.cuh).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dispatch/choose.hpp"
#include "reference/judge/harness.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

class StreamKTail : public VariantTest {
 protected:
  bool is_ragged() const { return variant().name == "sm90_ragged"; }
  /// Blocks share the rows of a work tile by its keys. Few keys are one tile; of sequences whose
  /// lengths the device alone knows, no tail is known.
  bool shares() const { return !few_keys() && !is_ragged(); }
  /// V^T lies in the workspace, or the order of sequences.
  bool prepares() const {
    return variant().name == "sm90_pre_transpose" || variant().name == "sm90_shared_transpose" ||
           is_ragged();
  }

  /// A plan, of tensors that are gone: nothing is launched.
  Result<Plan> plan_of(const reference::Shape& shape, const PlanOptions& options) const {
    const auto data = case_data(shape, 81, codes());
    reference::CheckOptions check;
    check.lse = false;
    check.values = variant().weights;
    const auto harness = reference::Harness::make(*data, device_, check);
    if (!harness.ok()) return harness.status();
    return plan((*harness)->problem(), device_, &variant(), options);
  }
  std::size_t workspace_bytes(const reference::Shape& shape, const PlanOptions& options) const {
    const Result<Plan> planned = plan_of(shape, options);
    EXPECT_TRUE(planned.ok()) << planned.status().message();
    return planned.ok() ? planned->workspace_bytes() : 0;
  }

  /// So many that blocks share them: on a device a merge has its price.
  std::int64_t many_keys() const { return device_.backend == Backend::kHost ? 1100 : 11000; }
  /// Few rows at the first head dim that the variant serves.
  reference::Shape few_rows() const {
    return few_rows(head_dims().front(), few_keys() ? 100 : many_keys());
  }
  static reference::Shape few_rows(int head_dim, std::int64_t seq_kv) {
    reference::Shape shape = make_shape(1, 1, 40, seq_kv, head_dim);
    shape.name += "_shared";
    return shape;
  }
};

std::vector<const Variant*> sm90_variants() {
  std::vector<const Variant*> chosen;
  for (const Variant* variant : all_variants()) {
    if (variant->family == Family::kSm90) chosen.push_back(variant);
  }
  return chosen;
}

// The call without a plan has no workspace to give: no rows are shared.
TEST(RunningAtOnce, TakesNoWorkspace) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  const auto data = case_data(make_shape(1, 3, 300, 1100, 128), 81);
  const auto harness = reference::Harness::make(*data, device, {});
  ASSERT_TRUE(harness.ok()) << harness.status().message();
  const Problem& problem = (*harness)->problem();
  const auto shared = plan(problem, device);
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_GT(shared->workspace_bytes(), 0U);
  const auto whole = plan(problem, device, nullptr, {.no_workspace = true});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const auto expected = (*harness)->run(*whole);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const auto bytes = static_cast<std::size_t>(problem.heads_q * problem.o.stride_head) * 2;
  const auto fetched = [&] {
    const auto* const o = static_cast<const std::uint8_t*>(problem.o.data);
    return std::vector<std::uint8_t>(o, o + bytes);
  };
  const std::vector<std::uint8_t> o = fetched();
  std::memset(problem.o.data, 0, bytes);
  const Status ran = detail::forward_at_once(problem, device, nullptr);
  EXPECT_TRUE(ran.ok()) << ran.message();
  EXPECT_EQ(fetched(), o);
}

// One tile of rows and many keys: every block has a part of it.
TEST_P(StreamKTail, OneTileOfRowsForAllBlocks) {
  if (!ready_) return;
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(testing::Message() << "head_dim " << head_dim);
    expect_pass_or_known_decline(variant(), few_rows(head_dim, many_keys()), 81, device_);
  }
}

// Whole tiles first, parts of the rest after them; blocks that end inside a tile and begin another.
TEST_P(StreamKTail, TheTailOfSeveralRounds) {
  if (!ready_) return;
  for (const int head_dim : {64, 128, 256}) {
    for (const auto& [heads, seq] : {std::pair{1, 700}, {3, 300}, {5, 200}}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, " << seq << " keys, " << head_dim);
      expect_pass_or_known_decline(variant(), make_shape(1, heads, seq, seq, head_dim), 82,
                                   device_);
    }
  }
}

// Under the causal mask tiles of rows see different numbers of keys, and some none: whoever has
// such a tile writes its zeros.
TEST_P(StreamKTail, CausalTilesOfDifferentLengths) {
  if (!ready_) return;
  for (const int head_dim : {64, 128, 256}) {
    for (const auto& [heads, seq_q, seq_kv] :
         {std::tuple{3, 300, 300}, {5, 130, 170}, {1, 600, 200}, {2, 500, 260}}) {
      SCOPED_TRACE(testing::Message()
                   << heads << " heads, " << seq_q << " x " << seq_kv << ", " << head_dim);
      reference::Shape shape = make_shape(1, heads, seq_q, seq_kv, head_dim);
      shape.mask = Mask::kCausal;
      shape.name += "_causal";
      expect_pass_or_known_decline(variant(), shape, 83, device_);
    }
  }
}

// Of a KV head, whose query heads may share the tile that blocks share.
TEST_P(StreamKTail, TilesOfSeveralHeads) {
  if (!ready_ || !shares()) return;
  for (const int head_dim : {64, 128, 256}) {
    for (const auto& [heads_q, heads_kv, seq_q, seq_kv, mask] :
         {std::tuple{8, 1, 37, 700, Mask::kCausal},
          {4, 1, 50, 900, Mask::kNone},
          {12, 2, 70, 300, Mask::kCausal},
          {7, 1, 50, 600, Mask::kCausal},
          {6, 2, 21, 400, Mask::kNone}}) {
      SCOPED_TRACE(testing::Message()
                   << heads_q << " heads, " << seq_q << " x " << seq_kv << ", " << head_dim);
      reference::Shape shape = make_shape(1, heads_q, seq_q, seq_kv, head_dim);
      shape.heads_kv = heads_kv;
      shape.mask = mask;
      shape.name += "_of_" + std::to_string(heads_kv) + "_" + name_of(mask);
      expect_pass_or_known_decline(variant(), shape, 85, device_);
    }
  }
}

// Else the tests above would test nothing.
TEST_P(StreamKTail, ThePlanSaysWhatWorkspaceItNeeds) {
  if (!ready_) return;
  const reference::Shape shape = few_rows();
  EXPECT_EQ(workspace_bytes(shape, {}) > 0, shares() || prepares());
  EXPECT_EQ(workspace_bytes(shape, {.batch_invariant = true}) > 0, prepares());
  if (!prepares()) {
    EXPECT_EQ(workspace_bytes(shape, {.no_workspace = true}), 0U);
  }
}

TEST_P(StreamKTail, AVariantThatNeedsAWorkspaceSaysSo) {
  if (!ready_ || !prepares()) return;
  const reference::Shape shape = few_rows();
  const Result<Plan> planned = plan_of(shape, {.no_workspace = true});
  EXPECT_EQ(planned.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(planned.status().message(),
            std::string(variant().name) +
                " needs a workspace, which PlanOptions::no_workspace rules out");
}

TEST_P(StreamKTail, AMissingOrMisalignedWorkspaceIsAnError) {
  if (!ready_ || !shares()) return;
  const reference::Shape shape = few_rows();
  const Result<Plan> planned = plan_of(shape, {});
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  ASSERT_GT(planned->workspace_bytes(), 0U);  // what is launched below has no memory
  Status status = forward(*planned, nullptr, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "workspace is null; " + std::string(variant().name) + " needs " +
                                  std::to_string(planned->workspace_bytes()) +
                                  " bytes for this problem (Plan::workspace_bytes)");
  std::vector<std::byte> memory(planned->workspace_bytes() + 32);
  void* aligned = memory.data();
  std::size_t room = memory.size();
  ASSERT_NE(std::align(16, planned->workspace_bytes() + 8, aligned, room), nullptr);
  status = forward(*planned, static_cast<std::byte*>(aligned) + 8, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "workspace is not aligned to 16 bytes");
}

// As layers of a model do: what one plan leaves in the workspace is nothing to another, whatever
// its sizes.
TEST_P(StreamKTail, PlansMayShareOneWorkspace) {
  if (!ready_ || device_.backend != Backend::kHost) return;  // O is looked at where it is
  constexpr int kPlans = 4;
  struct Turn {
    std::unique_ptr<reference::Harness> harness;
    Plan plan;
    std::vector<std::uint16_t> alone;  ///< O's bits
  };
  reference::CheckOptions options;
  options.lse = false;
  options.values = variant().weights;
  for (const int head_dim : head_dims()) {
    std::vector<Turn> turns;
    std::size_t bytes = 0;
    for (int i = 0; i < kPlans; ++i) {
      const auto shape = make_shape(1, 1 + i % 3, 40, few_keys() ? 100 : 300, head_dim);
      if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
      auto harness = reference::Harness::make(*case_data(shape, 84, codes()), device_, options);
      ASSERT_TRUE(harness.ok()) << harness.status().message();
      Result<Plan> planned = plan((*harness)->problem(), device_, &variant());
      ASSERT_TRUE(planned.ok()) << planned.status().message();
      const auto alone = (*harness)->run(*planned);
      ASSERT_TRUE(alone.ok()) << alone.status().message();
      bytes = std::max(bytes, planned->workspace_bytes());
      turns.push_back({std::move(*harness), std::move(*planned), alone->o});
    }
    constexpr std::size_t kAlignment = 256;
    std::vector<std::byte> memory(bytes + kAlignment, std::byte{0xFF});
    void* workspace = memory.data();
    std::size_t room = memory.size();
    ASSERT_NE(std::align(kAlignment, bytes, workspace, room), nullptr);
    for (std::size_t nth = 0; nth < 2 * turns.size(); ++nth) {
      const Turn& turn = turns[nth * 3 % turns.size()];
      void* const o = turn.harness->problem().o.data;
      const std::size_t size = turn.alone.size() * sizeof(std::uint16_t);
      std::memset(o, 0xFF, size);
      const Status ran = forward(turn.plan, workspace, nullptr);
      ASSERT_TRUE(ran.ok()) << "launch " << nth << ": " << ran.message();
      EXPECT_EQ(std::memcmp(o, turn.alone.data(), size), 0) << "launch " << nth;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, StreamKTail,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(sm90_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
