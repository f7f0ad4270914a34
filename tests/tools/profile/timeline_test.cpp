// The phase timeline: logged kernels compute what the others do, their logs are whole, and what is
// made of a log is right.
#include "benchmarks/profile/timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "benchmarks/run/gated_cases.hpp"
#include "reference/config/config.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using attention::Phase;
using attention::PhaseMark;

reference::Shape ragged_shape() {
  reference::Shape shape = made_shape("ragged");
  shape.heads_q = shape.heads_kv = 2;
  shape.seq_q = 45;
  shape.seq_kv = 150;
  return shape;
}

class TracedVariants : public testing::TestWithParam<traced::TracedVariant> {};

TEST_P(TracedVariants, ComputeWhatTheVariantComputesAndLogEveryPhaseOfEveryWarp) {
  const traced::TracedVariant& traced = GetParam();
  const auto variant = find_variant(traced.name);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  auto config = reference::load_config(FP8_SDPA_CONFIG_FILE);
  ASSERT_TRUE(config.ok()) << config.status().message();
  GatedCases cases(*config, host_executor());
  const auto launch = cases.launch(**variant, ragged_shape());
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  const auto timeline = take_timeline(traced, *launch->workload, launch->judged);
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();

  EXPECT_EQ(timeline->warps, (*variant)->resources.threads / gpu::kWarpSize);
  EXPECT_EQ(timeline->blocks, 2 * 2);
  std::map<std::pair<int, int>, std::uint64_t> ends;
  std::map<Phase, std::set<std::uint32_t>> tiles;
  for (const PhaseSpan& span : timeline->spans) {
    const auto [end, first] = ends.emplace(std::pair(span.block, span.warp), span.start);
    EXPECT_EQ(end->second, span.start) << "a gap in the time of a warp";
    end->second = span.start + span.cycles;
    tiles[span.phase].insert(span.tile);
  }
  EXPECT_EQ(ends.size(), static_cast<std::size_t>(timeline->blocks) * timeline->warps);
  const auto steps = static_cast<std::size_t>((150 + traced.tile_n - 1) / traced.tile_n);
  for (const Phase phase : {Phase::kQk, Phase::kSoftmax, Phase::kPv}) {
    EXPECT_EQ(tiles[phase].size(), steps) << name_of(phase);
  }
  EXPECT_EQ(tiles[Phase::kQLoad].size(), 1U);
  EXPECT_EQ(tiles[Phase::kStoreO].size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(All, TracedVariants,
                         testing::ValuesIn(traced::traced_variants().begin(),
                                           traced::traced_variants().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TracedVariantTable, NamesVariantsOfTheTable) {
  EXPECT_GE(traced::traced_variants().size(), 8U);
  EXPECT_EQ(traced::find_traced_variant("stage_c_lut"), nullptr);
}

/// Two warps on multiprocessor 5, one a little later than the other.
std::vector<PhaseMark> two_warps() {
  return {{100, Phase::kQLoad, 5, 0},   {130, Phase::kQk, 5, 3}, {190, Phase::kEnd, 5, 0}, {},
          {110, Phase::kSoftmax, 5, 3}, {120, Phase::kQk, 5, 4}, {140, Phase::kEnd, 5, 0}, {}};
}

TEST(Timeline, GivesEachPhaseTheTimeToTheNextMark) {
  const auto timeline = make_timeline("v", 1, 2, 4, two_warps());
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();
  ASSERT_EQ(timeline->spans.size(), 4U);
  EXPECT_EQ(timeline->spans[1].phase, Phase::kQk);
  EXPECT_EQ(timeline->spans[1].start, 30U);
  EXPECT_EQ(timeline->spans[1].cycles, 60U);
  EXPECT_EQ(timeline->spans[2].warp, 1);
  EXPECT_EQ(timeline->spans[2].start, 10U);

  const auto all = totals(*timeline);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].phase, Phase::kQk);
  EXPECT_EQ(all[1].cycles, 80U);
  EXPECT_EQ(all[1].spans, 2);
  EXPECT_NE(phase_table(*timeline).find("| QK | 40 | 66.7 % | 1.0 | 40 |"), std::string::npos)
      << phase_table(*timeline);
}

TEST(Timeline, BecomesAChromeTrace) {
  const auto timeline = make_timeline("v", 2, 1, 4, two_warps());
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();
  const nlohmann::json trace = chrome_trace(*timeline, 1);
  ASSERT_EQ(trace["traceEvents"].size(), 2U) << "the first block alone";
  const nlohmann::json& event = trace["traceEvents"][1];
  EXPECT_EQ(event["name"], "QK");
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["pid"], 5);
  EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 0.030);
  EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 0.060);
  EXPECT_EQ(event["args"]["tile"], 3);
}

TEST(Timeline, RefusesALogThatIsNotWhole) {
  auto marks = two_warps();
  marks[6].phase = Phase::kNone;
  auto timeline = make_timeline("v", 1, 2, 4, marks);
  ASSERT_FALSE(timeline.ok());
  EXPECT_EQ(timeline.status().message(), "v: the phase log of block 0, warp 1 has no end");
  marks = two_warps();
  marks[1].clock = 99;
  timeline = make_timeline("v", 1, 2, 4, marks);
  ASSERT_FALSE(timeline.ok());
  EXPECT_EQ(timeline.status().message(), "v: the phase log of block 0, warp 0 runs backwards");
}

using TimelineTool = ToolTest;

TEST_F(TimelineTool, RefusesAVariantWithoutALog) {
  const Ran ran =
      run(FP8_SDPA_TIMELINE_BINARY, {"small", "0", "--variant", "stage_c_lut", "--out", at("out")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.err.find("stage_c_lut has no phase log, expected one of stage_c, "),
            std::string::npos)
      << ran.err;
}

TEST_F(TimelineTool, NeedsAGpu) {
  if (current_device().ok()) GTEST_SKIP() << "there is a GPU here";
  const Ran ran = run(FP8_SDPA_TIMELINE_BINARY, {"small", "0", "--out", at("out")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(at("out")));
}

}  // namespace
}  // namespace fp8_sdpa::bench
