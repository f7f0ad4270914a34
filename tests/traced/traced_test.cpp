// Kernels that log their phases write where they may: every launch fits its log, to the mark. Here
// AddressSanitizer and UBSan look on; what the logs say is asked in
// tests/tools/profile/timeline_test.cpp.
#include "traced/traced.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "reference/judge/harness.hpp"
#include "reference/oracle/case.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::tests {
namespace {

using attention::Phase;
using attention::PhaseMark;

class TracedKernels : public testing::TestWithParam<traced::TracedVariant> {};

TEST_P(TracedKernels, WriteNothingBesideTheirLogs) {
  const traced::TracedVariant& traced = GetParam();
  // Partial tiles of queries and of keys, in two heads.
  reference::Shape shape;
  shape.name = "ragged";
  shape.batch = 1;
  shape.heads_q = shape.heads_kv = 2;
  shape.seq_q = 45;
  shape.seq_kv = 150;
  shape.head_dim = 64;
  const auto data = reference::make_case(shape, 1, Dtype::kE4M3);
  const Device device = host_executor();
  const auto harness = reference::Harness::make(*data, device, {});
  ASSERT_TRUE(harness.ok()) << harness.status().message();
  const Problem& problem = (*harness)->problem();

  const int per_warp = traced.marks_per_warp(problem);
  std::vector<PhaseMark> marks(std::size_t{traced.blocks(problem)} *
                               static_cast<std::size_t>(traced.warps * per_warp));
  const auto log = reference::allocate(device, marks.size() * sizeof(PhaseMark), "phase log");
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_TRUE((*log)->upload(marks.data()).ok());
  const Status status =
      traced.launch_host(problem, {static_cast<PhaseMark*>((*log)->data()), per_warp}, {});
  ASSERT_TRUE(status.ok()) << status.message();

  const auto changed = (*log)->changed_guard_bytes();
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(*changed, 0);
  ASSERT_TRUE((*log)->download(marks.data()).ok());
  for (std::size_t first = 0; first < marks.size(); first += static_cast<std::size_t>(per_warp)) {
    EXPECT_NE(marks[first].phase, Phase::kNone) << "warp " << first / per_warp << " logged nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(All, TracedKernels,
                         testing::ValuesIn(traced::traced_variants().begin(),
                                           traced::traced_variants().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fp8_sdpa::tests
