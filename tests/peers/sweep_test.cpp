// The sweep's plan, its cost model, its file, and its parts on many GPUs.
#include "benchmarks/sweep/sweep.hpp"

#include <sched.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/sweep/allocation.hpp"
#include "benchmarks/sweep/cost_model.hpp"
#include "benchmarks/sweep/scaling.hpp"
#include "reference/formats/parallel.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

std::vector<SweepPoint> default_points() {
  return sweep_points(kFirstLevel, kLastLevel, kLevelStep, 64);
}

TEST(SweepPoints, HaveTheWorkOfTheirLevel) {
  std::set<std::string> names;
  std::set<std::int64_t> lengths;
  std::set<int> heads;
  for (const SweepPoint& place : default_points()) {
    const reference::Shape& shape = place.shape;
    EXPECT_EQ(std::int64_t{shape.batch} * shape.heads_q * shape.seq_q * shape.seq_kv,
              std::int64_t{1} << place.level);
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name;
    lengths.insert(shape.seq_q);
    heads.insert(shape.batch * shape.heads_q);
  }
  EXPECT_EQ(*lengths.begin(), 32);
  EXPECT_EQ(*lengths.rbegin(), 65536);
  EXPECT_EQ(*heads.begin(), 1);
  EXPECT_EQ(*heads.rbegin(), 128);
  EXPECT_TRUE(names.count("s32_bh128") && names.count("s65536_bh1"));
}

TEST(SweepPoints, PartsAreAPartitionOfAboutEqualWork) {
  for (const int parts : {1, 2, 3, 8}) {
    std::multiset<std::string> dealt;
    for (int part = 0; part < parts; ++part) {
      for (const SweepPoint& p : points_of_part(default_points(), part, parts)) {
        dealt.insert(p.shape.name);
      }
    }
    std::multiset<std::string> all;
    for (const SweepPoint& place : default_points()) all.insert(place.shape.name);
    EXPECT_EQ(dealt, all) << parts;
  }
  // The four sweep points of the largest level go to four parts.
  for (int part = 0; part < 4; ++part) {
    EXPECT_EQ(points_of_part(default_points(), part, 4).front().level, kLastLevel);
  }
}

TEST(CostModel, CountsWavesAndTiles) {
  reference::Shape shape;
  shape.batch = 2;
  shape.heads_q = shape.heads_kv = 8;
  shape.seq_q = 1000;
  shape.seq_kv = 1000;
  // 16 * ceil(1000 / 64) = 256 blocks: 2 waves of 132; ceil(1000 / 128) = 8 tiles.
  EXPECT_EQ(steps_of(shape, {0, 0, 64, 128}, 132), 16);
  EXPECT_EQ(steps_of(shape, {0, 0, 64, 128}, 256), 8);
  EXPECT_EQ(steps_of(shape, {0, 0, 64, 128}, 255), 16);
}

TEST(CostModel, RecoversPlantedParametersUnderNoise) {
  constexpr double kLaunch = 3.2;
  constexpr double kStep = 0.37;
  constexpr double kNoise = 0.02;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0.0, kNoise);
  std::vector<CostPoint> points;
  for (int bits = 0; bits <= 13; ++bits) {
    for (int repeat = 0; repeat < 4; ++repeat) {
      const double steps = std::exp2(bits);
      points.push_back({steps, (kLaunch + kStep * steps) * (1 + normal(random))});
    }
  }
  const auto model = fit_cost_model(points);
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR(model->launch_us, kLaunch, 0.03 * kLaunch);
  EXPECT_NEAR(model->per_step_us, kStep, 0.03 * kStep);
  EXPECT_NEAR(rms_departure(*model, points), kNoise, 0.01);
}

TEST(CostModel, IsExactWithoutNoiseAndShowsThePointThatDeparts) {
  std::vector<CostPoint> points;
  for (const double steps : {1.0, 5.0, 40.0, 3000.0}) points.push_back({steps, 4 + 0.5 * steps});
  const auto exact = fit_cost_model(points);
  ASSERT_TRUE(exact.ok());
  EXPECT_NEAR(exact->launch_us, 4, 1e-9);
  EXPECT_NEAR(exact->per_step_us, 0.5, 1e-9);
  for (const CostPoint& point : points) EXPECT_NEAR(departure(*exact, point), 0, 1e-9);
  EXPECT_NEAR(departure(*exact, {40, 1.3 * 24}), 0.3, 1e-9);
}

TEST(CostModel, RefusesWhatCannotBeFitted) {
  EXPECT_FALSE(fit_cost_model({}).ok());
  EXPECT_FALSE(fit_cost_model({{4, 1}}).ok());
  EXPECT_FALSE(fit_cost_model({{4, 1}, {4, 2}}).ok());
  EXPECT_FALSE(fit_cost_model({{4, 1}, {8, 0}}).ok());
  EXPECT_FALSE(fit_cost_model({{4, 1}, {8, std::nan("")}}).ok());
}

class SweepFile : public ToolTest {
 protected:
  /// A record that keeps to the cost model but for 30 % at one sweep point.
  static SweepRecord record_at(const SweepPoint& place, const char* variant) {
    SweepRecord record;
    record.level = place.level;
    record.shape = place.shape;
    record.variant = variant;
    record.tile_m = record.tile_n = 64;
    record.steps = steps_of(place.shape, {0, 0, 64, 64}, 132);
    record.graph_us = 2 + 0.25 * record.steps;
    if (place.shape.name == "s8192_bh1") record.graph_us *= 1.3;
    record.events_us = record.graph_us + 4;
    record.device_bytes = tensor_bytes(place.shape);
    return record;
  }

  static SweepResults results_of(const std::vector<SweepPoint>& places) {
    SweepResults results;
    for (const SweepPoint& place : places) {
      for (const char* variant : {"sm80_mma", "stage_c"}) {
        results.records.push_back(record_at(place, variant));
      }
    }
    return results;
  }

  static nlohmann::json schema() {
    return *read_json(default_schema_folder() + "/sweep.schema.json");
  }
};

TEST_F(SweepFile, IsOfItsSchemaAndShowsWhereTheModelFails) {
  SweepResults results = results_of(default_points());
  results.left_out.push_back({"s32_bh128", "sm90_tma", "a reason"});
  const auto document = sweep_document(made_run(), results);
  const Status valid = validate_document(document, schema(), "sweep.json");
  EXPECT_TRUE(valid.ok()) << valid.message();
  ASSERT_EQ(document.at("fits").size(), 2U);
  const std::string table = sweep_table(document);
  EXPECT_NE(table.find("| s8192_bh1 |"), std::string::npos) << table;
  EXPECT_NE(table.find("sm90_tma at s32_bh128 is left out: a reason"), std::string::npos);
  write(at("sweep.json"), document.dump());
  EXPECT_TRUE(validate_by_name(at("sweep.json"), default_schema_folder()).ok());
}

TEST_F(SweepFile, OnePlaceHasNoFit) {
  SweepResults results;
  results.records.push_back(record_at(default_points().front(), "stage_c"));
  const auto document = sweep_document(made_run(), results);
  EXPECT_TRUE(document.at("fits").empty());
  EXPECT_TRUE(document.at("/results/0/departure"_json_pointer).is_null());
  EXPECT_TRUE(validate_document(document, schema(), "sweep.json").ok());
}

TEST_F(SweepFile, PartsMergeToWhatOneGpuWrites) {
  const auto whole = sweep_document(made_run(), results_of(default_points()));
  for (const int parts : {1, 2, 5}) {
    std::vector<nlohmann::json> documents;
    for (int part = parts - 1; part >= 0; --part) {
      documents.push_back(
          sweep_document(made_run(), results_of(points_of_part(default_points(), part, parts))));
    }
    const auto merged = merge_sweeps(documents);
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    EXPECT_EQ(merged->dump(), whole.dump()) << parts;
  }
}

TEST_F(SweepFile, RefusesPartsThatDoNotBelongTogether) {
  const auto first = sweep_document(made_run(), results_of(points_of_part(default_points(), 0, 2)));
  auto other = sweep_document(made_run(), results_of(points_of_part(default_points(), 1, 2)));
  const auto twice = merge_sweeps({first, first});
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("is there twice"), std::string::npos);
  other["device"]["name"] = "NVIDIA H100";
  const auto mixed = merge_sweeps({first, other});
  ASSERT_FALSE(mixed.ok());
  EXPECT_NE(mixed.status().message().find("/device/name: got \"NVIDIA H100\""), std::string::npos)
      << mixed.status().message();
}

class SweepScaling : public SweepFile {
 protected:
  /// The sweep again, with every time longer by a share.
  static nlohmann::json slower(double share) {
    SweepResults results = results_of(default_points());
    for (SweepRecord& record : results.records) record.graph_us *= 1 + share;
    return sweep_document(made_run(), results);
  }
};

TEST_F(SweepScaling, TimesMayDiffer) {
  const auto one = slower(0.0);
  auto all = slower(0.02);
  const auto difference = compare_sweeps(all, one);
  ASSERT_TRUE(difference.ok()) << difference.status().message();
  EXPECT_EQ(difference->places, static_cast<int>(one.at("results").size()));
  EXPECT_NEAR(difference->median, 0.02, 1e-9);
  EXPECT_NEAR(difference->largest, 0.02, 1e-9);
  const auto document = scaling_document(all, {1, 100.0}, {2, 52.0}, *difference);
  EXPECT_NEAR(document.at("share_of_time").get<double>(), 0.52, 1e-9);
  EXPECT_NEAR(document.at("ideal_share").get<double>(), 0.5, 1e-9);
  const std::string line = scaling_line({1, 100.0}, {2, 52.0}, *difference);
  EXPECT_NE(line.find("1 GPU: 100.0 s, 2 GPUs: 52.0 s: 0.52 of the time (1 / 2 is 0.50)"),
            std::string::npos)
      << line;
}

TEST_F(SweepScaling, AllElseMustBeTheSame) {
  const auto one = slower(0.0);
  auto missing = one;
  missing["results"].erase(missing["results"].begin());
  auto other_steps = one;
  other_steps["results"][0]["steps"] = 12345;
  auto gap = one;
  gap["left_out"].push_back({{"shape", "s32_bh128"}, {"variant", "sm90_x"}, {"reason", "why"}});
  auto nothing = one;
  nothing["results"].clear();
  for (const auto& [other, expected] :
       std::vector<std::pair<nlohmann::json, std::string>>{{missing, " is in one alone"},
                                                           {other_steps, "12345"},
                                                           {gap, "sm90_x at s32_bh128 is left out"},
                                                           {nothing, " is in one alone"}}) {
    const auto difference = compare_sweeps(one, other);
    ASSERT_FALSE(difference.ok()) << expected;
    EXPECT_NE(difference.status().message().find(expected), std::string::npos)
        << difference.status().message();
  }
  EXPECT_FALSE(compare_sweeps(nothing, nothing).ok());
}

TEST(ShareOfCores, IsDealtEvenly) {
  std::vector<int> cores(33);
  std::iota(cores.begin(), cores.end(), 4);
  for (const int parts : {1, 2, 3, 8}) {
    std::vector<int> dealt;
    for (int part = 0; part < parts; ++part) {
      const auto share = share_of_cores(cores, part, parts);
      EXPECT_LE(std::abs(static_cast<int>(share.size()) - 33 / parts), 1);
      dealt.insert(dealt.end(), share.begin(), share.end());
    }
    EXPECT_EQ(dealt, cores) << parts;
  }
  // Fewer cores than GPUs: nobody is left without one.
  for (int part = 0; part < 8; ++part) EXPECT_EQ(share_of_cores({3, 5}, part, 8).size(), 1U);
}

TEST(ShareOfCores, ThisProcessKeepsToIt) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const int cores = reference::usable_cores();
  EXPECT_EQ(cores, CPU_COUNT(&before));
  const Status kept = use_share_of_cores(1, 2);
  const int share = reference::usable_cores();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_TRUE(kept.ok()) << kept.message();
  EXPECT_EQ(share, std::max(1, cores - cores / 2));
}

TEST(Allocation, ReadsTheGpuThatCTestGave) {
  const auto none = allocated_gpu(environment_of({}));
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  const auto third =
      allocated_gpu(environment_of({{"CTEST_RESOURCE_GROUP_COUNT", "1"},
                                    {"CTEST_RESOURCE_GROUP_0", "gpus"},
                                    {"CTEST_RESOURCE_GROUP_0_GPUS", "id:3,slots:1"}}));
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(*third, 3);
}

TEST(Allocation, RefusesWhatIsNoSingleGpu) {
  const std::map<std::string, std::string> good = {{"CTEST_RESOURCE_GROUP_COUNT", "1"},
                                                   {"CTEST_RESOURCE_GROUP_0", "gpus"},
                                                   {"CTEST_RESOURCE_GROUP_0_GPUS", "id:3,slots:1"}};
  for (const auto& [name, value] : std::multimap<std::string, std::string>{
           {"CTEST_RESOURCE_GROUP_COUNT", "2"},
           {"CTEST_RESOURCE_GROUP_0", "crypto"},
           {"CTEST_RESOURCE_GROUP_0_GPUS", ""},
           {"CTEST_RESOURCE_GROUP_0_GPUS", "id:x,slots:1"},
           {"CTEST_RESOURCE_GROUP_0_GPUS", "id:0,slots:1;id:1,slots:1"},
           {"CTEST_RESOURCE_GROUP_0_GPUS", "id:0,slots:2"}}) {
    auto values = good;
    values[name] = value;
    const auto gpu = allocated_gpu(environment_of(values));
    ASSERT_FALSE(gpu.ok()) << value;
    EXPECT_NE(gpu.status().message().find(name + ": got " + value), std::string::npos)
        << gpu.status().message();
  }
}

/// CTest itself, with the files as they are written, and a shell in the place of the sweep.
class AllocationByCTest : public ToolTest {};

TEST_F(AllocationByCTest, GivesEachPartOneOfTheGpus) {
  constexpr int kParts = 6;
  write(at("gpus.json"), resource_spec({0, 5}).dump());
  // $1: the part, $5: its folder.
  const std::string script =
      "mkdir -p \"$5\" && echo \"$CTEST_RESOURCE_GROUP_0_GPUS\" >\"$5/gpu\" && sleep 0.2";
  write(at("CTestTestfile.cmake"), part_tests({"/bin/sh", "-c", script}, kParts, root.string()));
  const auto ran = run_process({FP8_SDPA_CTEST, "--test-dir", root.string(), "--parallel", "2",
                                "--resource-spec-file", at("gpus.json"), "--output-on-failure"},
                               Stderr::kKeep);
  ASSERT_TRUE(ran.ok());
  ASSERT_EQ(ran->exit_code, 0) << ran->output;
  std::map<std::string, int> parts_of;
  for (int part = 0; part < kParts; ++part) {
    ++parts_of[read(at("part_" + std::to_string(part) + "/gpu"))];
  }
  ASSERT_EQ(parts_of.size(), 2U);
  EXPECT_GT(parts_of["id:0,slots:1\n"], 0);
  EXPECT_GT(parts_of["id:5,slots:1\n"], 0);
}

class SweepTool : public ToolTest {};

TEST_F(SweepTool, RefusesBadUsageInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> kCases = {
      {{"--part", "2", "--parts", "2"}, "--part: got 2, expected less than --parts, 2"},
      {{"--first-level", "30", "--last-level", "20"}, "is past --last-level 20"},
      {{"--variants", "nobody"}, "nobody"},
      {{"--scaling"}, "it needs --gpus"},
      {{"--config", "gone.json"}, "gone.json"}};
  for (const auto& [arguments, expected] : kCases) {
    const Ran ran = run(FP8_SDPA_SWEEP_BINARY, arguments);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

}  // namespace
}  // namespace fp8_sdpa::bench
