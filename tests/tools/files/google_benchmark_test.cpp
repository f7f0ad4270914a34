// What fp8_sdpa_bench writes stays readable by Google Benchmark's own tools.
#include "benchmarks/files/google_benchmark.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "benchmarks/files/perf_file.hpp"
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

class ContestFile : public ToolTest {
 protected:
  static PerfRecord record(const char* variant, Method method, double us) {
    return {made_shape("d64_4k"),      0, variant, method, 100, std::vector<double>(40, us), true,
            split_into_repetitions(40)};
  }
  /// Ours, chosen by the library, and a peer that failed its gates.
  std::string written() const {
    const std::vector<PerfRecord> records = {record("sm90_ping_pong", Method::kEventsWarm, 20),
                                             record("sm90_ping_pong", Method::kGraphWarm, 16),
                                             record("peer/cudnn_fp8", Method::kEventsWarm, 25)};
    const std::vector<CorrectnessRecord> judged = {made_verdict("sm90_ping_pong", "d64_4k", true),
                                                   made_verdict("peer/cudnn_fp8", "d64_4k", false)};
    write(at("benchmark.json"),
          benchmark_document(made_run(), made_gpu(), records, judged, /*automatic=*/true).dump());
    return at("benchmark.json");
  }
};

TEST_F(ContestFile, HasPeersUnderTheNamesOfOurCells) {
  const json file = read_json_file(written());
  std::set<std::string> names;
  for (const json& entry : file.at("benchmarks")) {
    names.insert(entry.at("name").get<std::string>());
    for (const char* key : {"real_time", "cpu_time", "p50_us", "tflops"}) {
      EXPECT_TRUE(entry.value(key, json()).is_number()) << key << " of " << entry;
    }
    EXPECT_EQ(entry.at("time_unit"), "us");
  }
  EXPECT_EQ(names, (std::set<std::string>{"forward/auto/d64_4k", "forward/auto/d64_4k/graph",
                                          "forward/cudnn_fp8/d64_4k"}));
  const json& ours = file.at("/benchmarks/0"_json_pointer);
  EXPECT_EQ(ours.at("label"), "sm90_ping_pong");
  EXPECT_EQ(ours.at("graph_us"), 16.0);
  const std::string failed = file.at("benchmarks").back().at("label");
  EXPECT_EQ(failed.rfind("gates failed: ", 0), 0U) << failed;
}

TEST_F(ContestFile, IsComparedWithThePeer) {
  const auto file = read_perf_file(written());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const PerfSeries* ours = file->find("auto", "d64_4k", "events_l2_warm");
  ASSERT_NE(ours, nullptr);
  EXPECT_EQ(ours->repetitions.size(), 20U);
  EXPECT_TRUE(ours->interleaved);
  const Ran ran = run(FP8_SDPA_COMPARE_BINARY,
                      {at("benchmark.json"), at("benchmark.json"), "--variant-old", "cudnn_fp8",
                       "--variant-new", "auto", "--out", at("COMPARE.md")});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(read(at("COMPARE.md")).find("| d64_4k | p50 | 1.250x |"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace fp8_sdpa::bench
