// Shapes drawn at random, the table of ratios, and the options that ask for them.
#include "benchmarks/peers/ratios.hpp"

#include <algorithm>
#include <set>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/run/drawn_shapes.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::Shape;

TEST(DrawnShapes, AreWithinTheirRangesAndReachThem) {
  std::set<int> dims;
  std::set<std::int64_t> shares;
  std::set<int> groups;
  std::set<std::string> names;
  int causal = 0;
  std::int64_t fewest = 1 << 30;
  std::int64_t most = 0;
  int most_heads = 0;
  const auto shapes = drawn_shapes(400, 1);
  ASSERT_EQ(shapes.size(), 400U);
  for (const Shape& shape : shapes) {
    dims.insert(shape.head_dim);
    names.insert(shape.name);
    EXPECT_GE(shape.seq_kv, 64) << shape.name;
    EXPECT_LE(shape.seq_kv, 32768) << shape.name;
    int halvings = 0;
    while (halvings < 6 && std::max<std::int64_t>(1, shape.seq_kv >> halvings) != shape.seq_q) {
      ++halvings;
    }
    EXPECT_EQ(std::max<std::int64_t>(1, shape.seq_kv >> halvings), shape.seq_q) << shape.name;
    shares.insert(halvings);
    EXPECT_GE(shape.batch, 1);
    EXPECT_GE(shape.heads_kv, 1);
    EXPECT_LE(shape.batch * shape.heads_q, 256) << shape.name;
    ASSERT_EQ(shape.heads_q % shape.heads_kv, 0) << shape.name;
    groups.insert(shape.heads_q / shape.heads_kv);
    EXPECT_LE(flop_count(shape), 4e12) << shape.name;
    causal += shape.mask == Mask::kCausal ? 1 : 0;
    fewest = std::min(fewest, shape.seq_kv);
    most = std::max(most, shape.seq_kv);
    most_heads = std::max(most_heads, shape.batch * shape.heads_q);
  }
  EXPECT_EQ(dims, (std::set<int>{64, 128, 256}));
  EXPECT_EQ(shares.size(), 7U);
  EXPECT_EQ(groups, (std::set<int>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(names.size(), shapes.size());
  EXPECT_NEAR(causal, 200, 60);
  EXPECT_LT(fewest, 80);
  EXPECT_GT(most, 25000);
  EXPECT_GT(most_heads, 200);
}

TEST(DrawnShapes, OfFewRowsAreAsDecodeStepsAre) {
  std::int64_t most_rows = 0;
  std::int64_t most_keys = 0;
  int most_kv_heads = 0;
  std::set<int> groups;
  for (const Shape& shape : drawn_shapes(300, 1, true)) {
    EXPECT_GE(shape.seq_q, 1) << shape.name;
    EXPECT_GE(shape.seq_kv, 64) << shape.name;
    EXPECT_LE(shape.batch * shape.heads_kv, 512) << shape.name;
    ASSERT_EQ(shape.heads_q % shape.heads_kv, 0) << shape.name;
    groups.insert(shape.heads_q / shape.heads_kv);
    most_rows = std::max(most_rows, shape.seq_q);
    most_keys = std::max(most_keys, shape.seq_kv);
    most_kv_heads = std::max(most_kv_heads, shape.batch * shape.heads_kv);
  }
  EXPECT_NEAR(static_cast<double>(most_rows), 62, 2);
  EXPECT_NEAR(static_cast<double>(most_keys), 60000, 5536);
  EXPECT_NEAR(most_kv_heads, 490, 22);
  EXPECT_EQ(*groups.begin(), 1);
  EXPECT_EQ(*groups.rbegin(), 16);
}

TEST(DrawnShapes, AreTheSameForTheSameSeedAlone) {
  EXPECT_EQ(drawn_shapes(60, 7), drawn_shapes(60, 7));
  EXPECT_NE(drawn_shapes(60, 7), drawn_shapes(60, 8));
  const auto few = drawn_shapes(5, 7);
  const auto many = drawn_shapes(60, 7);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_TRUE(drawn_shapes(0, 7).empty());
}

class Ratios : public testing::Test {
 protected:
  void add(const char* variant, const char* shape, double us, bool lse, bool pass = true) {
    PerfRecord record;
    record.shape.name = shape;
    record.variant = variant;
    record.method = kRatioMethod;
    record.samples_us = {us};
    record.lse = lse;
    results.perf.push_back(record);
    CorrectnessRecord judged;
    judged.shape.name = shape;
    judged.result.variant = variant;
    judged.result.pass = pass;
    results.correctness.push_back(judged);
  }

  std::string table() {
    std::vector<Shape> shapes(4);
    for (std::size_t i = 0; i < shapes.size(); ++i) shapes[i].name = "s" + std::to_string(i);
    return ratio_tables("Made", shapes, results);
  }

  ContestResults results;
};

TEST_F(Ratios, CompareTheFasterModeWithOurFastest) {
  add("slow", "s0", 40, false);
  add("fast", "s0", 10, false);
  add("peer/flash3_fp8", "s0", 40, true);
  add("fast", "s1", 10, false);
  add("peer/flash3_fp8", "s1", 20, true);
  add("peer/flash3_fp8_no_split", "s1", 10, true);
  add("fast", "s2", 10, false);
  add("peer/flash3_fp8", "s2", 1, true, /*pass=*/false);
  add("peer/flash3_fp8", "s3", 5, true);
  const std::string text = table();
  for (const char* part :
       {"## Made, peer/flash3_fp8\n", "Writes an LSE: ours no, peer/flash3_fp8 yes.",
        "| s0 | 10.00 | 40.00 | 4.000 | fast | peer/flash3_fp8 |",
        "| s1 | 10.00 | 10.00 | 1.000 | fast | peer/flash3_fp8_no_split |",
        "| s2 | 10.00 | 1.00 | 0.100 | fast | peer/flash3_fp8 (the peer failed a gate) |",
        "| s3 | - | 5.00 | - | none of ours was timed | peer/flash3_fp8 |",
        "2 of 4 rows count: geometric mean 2.000, least 1.000 (s1), 0 below 1."}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST_F(Ratios, SayWhereNothingWasCompared) {
  EXPECT_EQ(table(), "");
  add("peer/flash3_fp8", "s0", 5, true);
  EXPECT_NE(table().find("No row counts."), std::string::npos);
}

class LseInFiles : public ToolTest {};

TEST_F(LseInFiles, IsSaidOfEachSeriesWhereItIsKnown) {
  PerfRecord record;
  record.shape = made_shape("mission");
  record.variant = "peer/flash3_fp8";
  record.method = kRatioMethod;
  record.samples_us = {1, 2};
  record.repetitions = {{0, 2, {}}};
  PerfRecord other = record;
  other.variant = "fast";
  record.lse = true;
  const auto document = perf_baseline(made_run(), {record, other});
  EXPECT_EQ(document.at("/results/0/lse"_json_pointer), true);
  EXPECT_FALSE(document.contains("/results/1/lse"_json_pointer));
  write(at(kPerfFile), document.dump());
  const Status valid = validate_by_name(at(kPerfFile), default_schema_folder());
  EXPECT_TRUE(valid.ok()) << valid.message();
}

class RatioOptions : public ToolTest {};

TEST_F(RatioOptions, AreReadAndRefusedInOneLine) {
  const std::string without_gpu = "CUDA_VISIBLE_DEVICES=";
  const auto tool = [&](const std::vector<std::string>& arguments) {
    return run(FP8_SDPA_PEERS_BINARY, arguments, without_gpu);
  };
  const Ran right =
      tool({"--shapes", "goal", "--drawn", "3", "--draw-seed", "18446744073709551615", "--lse"});
  EXPECT_NE(right.err.find("a GPU is missing"), std::string::npos) << right.err;
  struct Case {
    std::vector<std::string> arguments;
    const char* expected;
  };
  for (const Case& c : {Case{{"--draw-seed", "3"}, "--drawn"}, Case{{"--drawn", "many"}, "many"},
                        Case{{"--drawn", "-1"}, "-1"},
                        Case{{"--drawn", "2", "--shapes", "mission"}, "--shapes goal"}}) {
    const Ran refused = tool(c.arguments);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find(c.expected), std::string::npos) << refused.err;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
