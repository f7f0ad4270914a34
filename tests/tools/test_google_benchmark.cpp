// What fp8_sdpa_bench writes stays readable by Google Benchmark's own tools.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

class GoogleBenchmarkFile : public ToolTest {
 protected:
  /// What two repetitions of the harness's own speed leave: no GPU is needed for the form.
  json made(const std::string& flag = "") const {
    std::vector<std::string> arguments = {"--host_executor",
                                          "--benchmark_filter=host_executor/stage_c_cp_async/small",
                                          "--benchmark_repetitions=2",
                                          "--benchmark_min_time=0.001",
                                          "--benchmark_out=" + at("bench.json"),
                                          "--benchmark_out_format=json"};
    if (!flag.empty()) arguments.push_back(flag);
    const Ran ran =
        run(FP8_SDPA_BENCH_BINARY, arguments, "-u SDPA_REQUIRE_GPU CUDA_VISIBLE_DEVICES=");
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return read_json_file(at("bench.json"));
  }
};

TEST_F(GoogleBenchmarkFile, HasWhatGoogleBenchmarksCompareReads) {
  // tools/gbench/report.py and util.py: they sort by family_index, per_family_instance_index and
  // repetition_index, tell run_type iteration from aggregate, pair by name, take real_time and
  // cpu_time (numbers of one time_unit) and test where repetitions are enough.
  const json file = made();
  ASSERT_TRUE(file.contains("context"));
  for (const char* key : {"date", "host_name", "executable", "num_cpus", "library_build_type"}) {
    EXPECT_TRUE(file["context"].contains(key)) << key;
  }
  std::set<int> repetitions;
  std::set<std::string> aggregates;
  for (const json& run : file.at("benchmarks")) {
    for (const char* key : {"name", "run_name", "run_type", "time_unit"}) {
      EXPECT_TRUE(run.value(key, json()).is_string()) << key << " of " << run;
    }
    for (const char* key : {"real_time", "cpu_time"}) {
      EXPECT_TRUE(run.value(key, json()).is_number()) << key << " of " << run;
    }
    for (const char* key :
         {"family_index", "per_family_instance_index", "repetitions", "threads"}) {
      EXPECT_TRUE(run.value(key, json()).is_number_integer()) << key << " of " << run;
    }
    EXPECT_EQ(run["run_name"], "host_executor/stage_c_cp_async/small/real_time");
    EXPECT_EQ(run["repetitions"], 2);
    if (run["run_type"] == "aggregate") {
      aggregates.insert(run.at("aggregate_name").get<std::string>());
      continue;
    }
    EXPECT_EQ(run["run_type"], "iteration");
    EXPECT_EQ(run["name"], run["run_name"]);
    EXPECT_EQ(run["time_unit"], "ms");
    EXPECT_GT(run["real_time"].get<double>(), 0);
    EXPECT_GE(run.at("iterations").get<int>(), 1);
    repetitions.insert(run.at("repetition_index").get<int>());
  }
  EXPECT_EQ(repetitions, (std::set<int>{0, 1}));
  EXPECT_TRUE(aggregates.contains("mean") && aggregates.contains("median"));
}

TEST_F(GoogleBenchmarkFile, SaysWhetherRepetitionsTookTurns) {
  EXPECT_EQ(made()["context"]["random_interleaving"], "false");
  EXPECT_EQ(made("--benchmark_enable_random_interleaving=true")["context"]["random_interleaving"],
            "true");
}

}  // namespace
}  // namespace fp8_sdpa::bench
