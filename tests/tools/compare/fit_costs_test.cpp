// The fit of costs.def: costs that made a record are found again, and the table is the record's.
#include "benchmarks/compare/fit_costs.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "sm90/sm90.hpp"

namespace fp8_sdpa::bench {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(FP8_SDPA_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string record_text() { return text_of("results/h200/shapes/variant_times.csv"); }

std::size_t index_of(std::string_view kernel) {
  for (std::size_t i = 0; i < std::size(sm90::kTileShapes); ++i) {
    if (sm90::kTileShapes[i].kernel == kernel) return i;
  }
  ADD_FAILURE() << kernel;
  return 0;
}

// One launch in eight takes half as long again: as another process on the machine makes it.
TEST(FitCosts, CostsThatMadeTheRecordAreFound) {
  const auto shapes = read_record(record_text());
  ASSERT_TRUE(shapes.ok()) << shapes.status().message();
  for (const std::string_view kernel :
       {"sm90_kv_split_d64_exact", "sm90_pre_transpose_d256_rounded"}) {
    const std::size_t index = index_of(kernel);
    const sm90::Cost made{4.25, 0.75, kernel.find("pre") == kernel.npos ? 0.0 : 0.5};
    std::vector<TimedKernel> record;
    for (TimedKernel timed : *shapes) {
      if (timed.kernel != &sm90::kTileShapes[index]) continue;
      const sm90::Load load = sm90::load_of(*timed.kernel, timed.problem, 132, {});
      timed.us = made.launch_us + made.tile_us * load.tiles + made.v_us * 1e-6 * load.v;
      if (record.size() % 8 == 3) timed.us *= 1.5;
      record.push_back(timed);
    }
    ASSERT_GT(record.size(), 30U);
    const sm90::Cost found = fit_cost(record, index);
    EXPECT_NEAR(found.launch_us, made.launch_us, 0.1 * made.launch_us) << kernel;
    EXPECT_NEAR(found.tile_us, made.tile_us, 0.04 * made.tile_us) << kernel;
    EXPECT_NEAR(found.v_us, made.v_us, 0.1 * made.v_us) << kernel;
  }
}

TEST(FitCosts, TheTableIsTheRecords) {
  const auto record = read_record(record_text());
  ASSERT_TRUE(record.ok()) << record.status().message();
  std::vector<sm90::Cost> costs;
  for (std::size_t i = 0; i < std::size(sm90::kTileShapes); ++i) {
    costs.push_back(fit_cost(*record, i));
    EXPECT_GT(costs[i].tile_us, 0.0) << sm90::kTileShapes[i].kernel;
    EXPECT_GT(sm90::kCosts[i].tile_us, 0.0) << sm90::kTileShapes[i].kernel;
  }
  EXPECT_EQ(costs_text(costs), text_of("kernels/sm90/costs.def"));
  const ChoiceLoss loss = choice_loss(*record, costs);
  EXPECT_GT(loss.shapes, 150);
  EXPECT_GE(loss.mean, 1.0);
  EXPECT_LT(loss.mean, 1.01);
  // Shapes of 1 to 64 rows, which the costs were not fitted to: memory is what binds.
  const auto few_rows = read_record(text_of("results/h200/shapes/few_rows_times.csv"));
  ASSERT_TRUE(few_rows.ok()) << few_rows.status().message();
  const ChoiceLoss of_few_rows = choice_loss(*few_rows, costs);
  EXPECT_GT(of_few_rows.shapes, 100);
  EXPECT_LT(of_few_rows.mean, 1.02);
}

TEST(FitCosts, TheLossIsOfTheChosenKernel) {
  const auto record = read_record(
      "shape,kernel,us\n"
      "d64_b1_h1_kv1_q64_k640,sm90_kv_split_d64_exact,12\n"
      "d64_b1_h1_kv1_q64_k640,sm90_kv_split2_d64_rounded,10\n"
      "d64_b1_h1_kv1_q64_k64,sm90_short_d64_exact,5\n");
  ASSERT_TRUE(record.ok());
  std::vector<sm90::Cost> costs(std::size(sm90::kTileShapes), sm90::Cost{1.0, 1.0, 0.0});
  costs[index_of("sm90_kv_split_d64_exact")] = {0.5, 0.0, 0.0};
  const ChoiceLoss wrong = choice_loss(*record, costs);
  EXPECT_EQ(wrong.shapes, 1);
  EXPECT_NEAR(wrong.mean, 1.2, 1e-12);
  EXPECT_EQ(wrong.above_3_percent, 1);
  EXPECT_EQ(wrong.worst_shape, "d64_b1_h1_kv1_q64_k640");
  costs[index_of("sm90_kv_split2_d64_rounded")] = {0.25, 0.0, 0.0};
  EXPECT_EQ(choice_loss(*record, costs).mean, 1.0);
}

TEST(FitCosts, ALineThatIsNoneIsNamed) {
  for (const char* const line :
       {"d64_b1_h1_kv1_q64_k64,sm90_short_d128_exact,5", "d64_b1_h1_kv1_q64,sm90_short_d64_exact,5",
        "d64_b1_h1_kv1_q64_k64,sm90_none,5", "d64_b1_h1_kv1_q64_k64,sm90_short_d64_exact,0",
        "d64_b1_h1_kv1_q64_k64,sm90_short_d64_exact,nan", ""}) {
    const auto record = read_record(std::string("shape,kernel,us\n") + line + "\n");
    ASSERT_FALSE(record.ok()) << line;
    EXPECT_NE(record.status().message().find("line 2"), std::string::npos) << line;
  }
  EXPECT_FALSE(read_record("us,shape\n").ok());
}

}  // namespace
}  // namespace fp8_sdpa::bench
