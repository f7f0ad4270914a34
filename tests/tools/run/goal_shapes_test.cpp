// The benchmark's goal shapes: their table, their gates, and what is said of them without a GPU.
#include "benchmarks/run/goal_shapes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "benchmarks/command/paths.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using GoalsTool = ToolTest;

const GoalSize& goal_of(const std::string& name) {
  const auto all = goal_sizes();
  return *std::find_if(all.begin(), all.end(),
                       [&](const GoalSize& goal) { return goal.name == name; });
}

TEST(Cells, AreTheGoalsOnesByName) {
  std::set<std::string> names;
  for (const GoalSize& goal : goal_sizes()) names.insert(goal.name);
  EXPECT_EQ(names,
            (std::set<std::string>{"d64_4k", "d64_16k", "d128_2k", "d128_8k", "d128_16k", "d256_4k",
                                   "d256_16k", "small", "mission", "long", "batch2", "chunk_32k"}));
  EXPECT_EQ(names.size(), goal_sizes().size());
}

TEST_F(GoalsTool, TheReadmeHasALineForEach) {
  const std::string readme = read(std::string(FP8_SDPA_SOURCE_DIR) + "/benchmarks/README.md");
  for (const GoalSize& goal : goal_sizes()) {
    std::ostringstream line;
    const auto of_both = [](std::int64_t queries, std::int64_t keys) {
      return std::to_string(queries) + (keys == queries ? "" : " / " + std::to_string(keys));
    };
    line << "| `" << goal.name << "` | " << goal.batch << ", " << of_both(goal.heads, goal.heads_kv)
         << ", " << of_both(goal.seq, goal.seq_kv) << ", " << goal.head_dim << " |";
    EXPECT_NE(readme.find(line.str()), std::string::npos) << line.str();
  }
}

TEST(Cells, SharesOfTheConfigurationAreItsShapes) {
  const auto config = reference::load_config(default_config_path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  for (const GoalSize& goal : goal_sizes()) {
    const reference::Shape* shape = config->find_shape(goal.name);
    if (shape == nullptr) continue;
    EXPECT_EQ(shape->batch, goal.batch);
    EXPECT_EQ(shape->heads_q, goal.heads);
    EXPECT_EQ(shape->seq_q, goal.seq);
    EXPECT_EQ(shape->head_dim, goal.head_dim);
  }
}

TEST(Cells, PassTheirGatesWithTheLibrarysChoice) {
  const auto config = reference::load_config(default_config_path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  GatedGoals gated(*config, host_executor());
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    const reference::Shape shape = shape_of(goal_of("small"), mask);
    const auto launch = gated.launch(shape);
    ASSERT_TRUE(launch.ok()) << launch.status().message();
    const Problem& problem = launch->plan.problem();
    EXPECT_EQ(problem.o.dtype, Dtype::kBFloat16);
    EXPECT_EQ(problem.lse, nullptr);
    EXPECT_EQ(problem.mask, mask);
    for (const float* descale : {problem.descales.q, problem.descales.k, problem.descales.v}) {
      EXPECT_NE(*descale, 1.0F);
    }
    EXPECT_EQ(&launch->plan.variant(), &plan(problem, host_executor())->variant());
    EXPECT_TRUE(launch->check_fresh_run().ok());
    EXPECT_EQ(launch->judged.size(), 32U * 64U);
  }
}

TEST(Cells, WhatFailsItsGatesIsNotHandedOut) {
  auto config = reference::load_config(default_config_path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  config->tolerances.rel_l2_quantised = 0.0;
  GatedGoals gated(*config, host_executor());
  for (int again = 0; again < 2; ++again) {
    const auto launch = gated.launch(shape_of(goal_of("small"), Mask::kNone));
    ASSERT_FALSE(launch.ok());
    EXPECT_NE(launch.status().message().find(" on small is not timed: gate rel_l2"),
              std::string::npos)
        << launch.status().message();
  }
}

TEST_F(GoalsTool, WithoutAGpuTheBenchmarkNamesThem) {
  const Ran ran = run(FP8_SDPA_BENCH_BINARY,
                      {"--host_executor", "--benchmark_filter=host_executor/sm80_mma/small"},
                      "CUDA_VISIBLE_DEVICES= SDPA_REQUIRE_GPU=0");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.err.find("performance needs a GPU ("), std::string::npos) << ran.err;
  for (const GoalSize& goal : goal_sizes()) {
    const std::string series = "forward/auto/" + std::string(goal.name);
    EXPECT_NE(ran.err.find(series + ","), std::string::npos) << series;
    EXPECT_NE(ran.err.find(series + "_causal"), std::string::npos) << series;
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
