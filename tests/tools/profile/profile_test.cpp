// fp8_sdpa_profile: the reader of ncu's CSV, the verdict tree on canned counters, and the whole
// tool with a stand-in for ncu.
#include "benchmarks/profile/profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "benchmarks/files/validate.hpp"
#include "benchmarks/profile/ncu_verdict.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

const std::string kTensor =
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active";
const std::string kDramName = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
const std::string kLoads = "smsp__inst_executed_op_local_ld.sum";
const std::string kStores = "smsp__inst_executed_op_local_st.sum";
const std::string kTime = "gpu__time_duration.sum";

/// The raw page: names, units, and the launches given.
std::string csv_of(const std::string& launches) {
  return "\"ID\",\"Kernel Name\",\"Block Size\",\"" + kTensor + "\",\"" + kDramName + "\",\"" +
         kLoads + "\",\"" + kStores + "\",\"" + kTime +
         "\"\n\"\",\"\",\"\",\"%\",\"%\",\"inst\",\"inst\",\"ns\"\n" + launches;
}

std::string launch(double tensor, double dram, double loads, double stores) {
  return "\"0\",\"kernel_entry\",\"(128, 1, 1)\",\"" + std::to_string(tensor) + "\",\"" +
         std::to_string(dram) + "\",\"" + std::to_string(loads) + "\",\"" + std::to_string(stores) +
         "\",\"1000\"\n";
}

ProfileVerdict verdict_of(double tensor, double dram, double loads = 0, double stores = 0) {
  const auto counters = parse_ncu_csv(csv_of(launch(tensor, dram, loads, stores)), "p.csv");
  EXPECT_TRUE(counters.ok()) << counters.status().message();
  const auto verdict = judge_profile(*counters);
  EXPECT_TRUE(verdict.ok()) << verdict.status().message();
  return *verdict;
}

TEST(ProfileVerdict, TakesTheFirstMatchOfTheTree) {
  EXPECT_EQ(verdict_of(9.9, 90, 5).verdict, "tensor cores not engaged");
  EXPECT_EQ(verdict_of(10, 90, 5).verdict, "spills");
  EXPECT_EQ(verdict_of(60, 90, 0, 1).verdict, "spills");
  EXPECT_EQ(verdict_of(60, 70.1).verdict, "memory-bound");
  EXPECT_EQ(verdict_of(60, 70).verdict, "compute-bound");
  EXPECT_EQ(verdict_of(50, 39).verdict, "mixed");
  EXPECT_EQ(verdict_of(39.9, 39.9).verdict, "latency-bound");
  EXPECT_EQ(verdict_of(40, 39).verdict, "mixed");
  EXPECT_EQ(verdict_of(39, 40).verdict, "mixed");
  EXPECT_EQ(verdict_of(60, 70).because, "tensor pipe 60.0 % > 50 %");
  EXPECT_EQ(verdict_of(60, 70).next_step, "raise occupancy and cut synchronisation");
}

TEST(ProfileVerdict, TakesTheBusiestTensorPipe) {
  KernelCounters counters;
  counters.metrics = {{kTensor, 0.0}, {kDramName, 5.0}, {kLoads, 0.0}, {kStores, 0.0}};
  EXPECT_EQ(judge_profile(counters)->verdict, "tensor cores not engaged");
  counters.metrics["sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_active"] = 55;
  EXPECT_EQ(judge_profile(counters)->verdict, "compute-bound");
}

TEST(ProfileVerdict, RefusesMissingCounters) {
  KernelCounters counters;
  counters.metrics = {{kTensor, 20.0}, {kDramName, 5.0}, {kLoads, 0.0}, {kStores, 0.0}};
  ASSERT_TRUE(judge_profile(counters).ok());
  for (const std::string& name : {kDramName, kLoads, kStores}) {
    KernelCounters less = counters;
    less.metrics.erase(name);
    const auto verdict = judge_profile(less);
    ASSERT_FALSE(verdict.ok()) << name;
    EXPECT_EQ(verdict.status().message(),
              "metric " + name + ": no number in the profile, expected one on this chip");
  }
}

TEST(NcuCsv, AveragesTheLaunchesOfTheKernelThatTookMostTime) {
  const auto counters = parse_ncu_csv(
      "==PROF== Connected\n" +
          csv_of("\"0\",\"void a<int, 4>(\"\"x\"\")\",\"(1, 1, 1)\",\"20\",\"1,000.5\",\"0\",\"0\","
                 "\"3000\"\n"
                 "\"1\",\"b\",\"(1, 1, 1)\",\"90\",\"9\",\"0\",\"0\",\"4000\"\n"
                 "\"2\",\"void a<int, 4>(\"\"x\"\")\",\"(1, 1, 1)\",\"30\",\"n/a\",\"0\",\"0\","
                 "\"2000\"\n"),
      "p.csv");
  ASSERT_TRUE(counters.ok()) << counters.status().message();
  EXPECT_EQ(counters->kernel, "void a<int, 4>(\"x\")");
  EXPECT_EQ(counters->launches, 2);
  EXPECT_EQ(counters->metrics.at(kTensor), 25);
  EXPECT_EQ(counters->metrics.at(kDramName), 1000.5);
  EXPECT_EQ(counters->metrics.at(kTime), 2500);
  EXPECT_EQ(counters->metrics.count("Block Size"), 0U);
}

TEST(NcuCsv, KeepsTheMetricsThatWereAskedForAlone) {
  const auto counters = parse_ncu_csv("\"ID\",\"Kernel Name\",\"device__attribute_chip\",\"" +
                                          kTensor + "\"\n\"0\",\"k\",\"384\",\"20\"\n",
                                      "p.csv");
  ASSERT_TRUE(counters.ok()) << counters.status().message();
  EXPECT_EQ(counters->metrics.count("device__attribute_chip"), 0U);
  EXPECT_EQ(counters->metrics.at(kTensor), 20);
}

TEST(NcuCsv, RefusesWhatIsNone) {
  const auto message = [](const std::string& csv) {
    return parse_ncu_csv(csv, "p.csv").status().message();
  };
  EXPECT_EQ(message(""),
            "p.csv: no row of names that starts with \"ID\", expected ncu's raw page as CSV");
  EXPECT_EQ(message("\"ID\",\"x__y\"\n"), "p.csv: no column \"Kernel Name\"");
  EXPECT_EQ(message(csv_of("")), "p.csv: no launch, expected one row for each");
  EXPECT_EQ(message(csv_of("\"0\",\"k\"\n")), "p.csv: launch 0 has 2 cells, expected 8");
}

TEST(NcuCommand, AsksOnlyForMetricsThatTheChipHas) {
  const auto known = known_metrics("dram__throughput  Percentage  %  text\nsm__throughput x\n");
  EXPECT_EQ(known, (std::vector<std::string>{kDramName,
                                             "sm__throughput.avg.pct_of_peak_sustained_elapsed"}));
  EXPECT_EQ(known_metrics(""), ncu_metrics());
}

TEST(NcuCommand, LeavesClocksAndCachesAndCountsTheTimedLaunches) {
  ProfileRequest request;
  request.shape = "mission";
  request.seed = 2;
  request.iters = 3;
  request.variant = "stage_c";
  request.folder = "out";
  request.ncu = "ncu";
  request.runner = "runner";
  const auto command = ncu_command(request, {"a", "b"});
  const auto value = [&](const std::string& flag) {
    const auto at = std::find(command.begin(), command.end(), flag);
    return at == command.end() ? "" : *(at + 1);
  };
  EXPECT_EQ(value("--clock-control"), "none");
  EXPECT_EQ(value("--cache-control"), "none");
  EXPECT_EQ(value("--nvtx-include"), "fp8_sdpa@timing/");
  EXPECT_EQ(value("--launch-count"), "3");
  EXPECT_EQ(value("--metrics"), "a,b");
  EXPECT_EQ(value("--shapes"), "mission");
  EXPECT_EQ(value("--seeds"), "2");
  EXPECT_EQ(value("--variants"), "stage_c");
  EXPECT_LT(std::find(command.begin(), command.end(), "--metrics"),
            std::find(command.begin(), command.end(), "runner"));
}

class ProfileTool : public ToolTest {
 protected:
  /// A stand-in for ncu: `body` is what it does where it is to profile.
  void make_ncu(const std::string& body) const {
    write(at("page.csv"), csv_of(launch(60, 20, 0, 0)));
    write(at("ncu"), "#!/bin/sh\ncase $1 in\n--query-metrics) exit 1 ;;\n--import) cat '" +
                         at("page.csv") + "'; exit 0 ;;\nesac\n" + body + "\n");
    std::filesystem::permissions(at("ncu"), std::filesystem::perms::owner_all);
  }
  Ran profile_mission(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"mission", "0",     "3",      "--variant",
                                          "stage_c", "--out", at("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(FP8_SDPA_PROFILE_BINARY, arguments, "PATH='" + root.string() + ":/usr/bin:/bin'");
  }
};

TEST_F(ProfileTool, WritesTheProfileAndItsVerdict) {
  make_ncu("echo rep > '" + at("out/profile.ncu-rep") + "'; echo connected");
  make_run("out/run", {{"stage_c", "mission", 20}});
  const Ran ran = profile_mission();
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "stage_c on mission: compute-bound (tensor pipe 60.0 % > 50 %)\n"
            "next: raise occupancy and cut synchronisation\nprofile: " +
                at("out") + "\n");
  EXPECT_EQ(read(at("out/profile.csv")), read(at("page.csv")));
  EXPECT_NE(read(at("out/profile.log")).find("\nconnected\n"), std::string::npos);
  EXPECT_EQ(read(at("out/verdict.txt")).rfind("stage_c on mission: compute-bound", 0), 0U);
  const Status form = validate_by_name(at("out/verdict.json"), FP8_SDPA_SCHEMA_DIR);
  EXPECT_TRUE(form.ok()) << form.message();
  const auto document = read_json_file(at("out/verdict.json"));
  EXPECT_EQ(document.at("metrics").at(kTensor), 60);
  EXPECT_EQ(document.at("device").at("name"), "NVIDIA H200");
}

TEST_F(ProfileTool, SaysWhatIsLeftOutWithoutNcu) {
  const Ran ran = profile_mission({"--ncu", at("none")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "fp8_sdpa_profile: " + at("none") +
                         " (Nsight Compute) is not found, so no profile and no verdict of "
                         "mission: expected it on PATH or by --ncu\n");
  EXPECT_FALSE(std::filesystem::exists(at("out")));
}

TEST_F(ProfileTool, SaysWhatIsLeftOutWithoutPermission) {
  make_ncu("echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1");
  const Ran ran = profile_mission();
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err,
            "fp8_sdpa_profile: ncu may not read the GPU's counters here "
            "(ERR_NVGPUCTRPERM): left out: profile.ncu-rep, profile.csv and the verdict "
            "(the log is " +
                at("out/profile.log") + ")\n");
  EXPECT_NE(read(at("out/profile.log")).find("no permission"), std::string::npos);
}

TEST_F(ProfileTool, SaysWhyARunFailed) {
  make_ncu("echo first; echo the reason; exit 9");
  const Ran failed = profile_mission();
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_NE(failed.err.find("ended with exit code 9 (\"the reason\"): left out: "),
            std::string::npos)
      << failed.err;
  make_ncu("echo ==WARNING== No kernels were profiled.");
  const Ran none = profile_mission();
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("ncu profiled no launch (\"==WARNING== No kernels"), std::string::npos)
      << none.err;
}

TEST_F(ProfileTool, RefusesWhatTheRunnerWouldRefuse) {
  make_ncu("exit 0");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"nowhere", "0", "3"},
                                                    {"mission", "77", "3"},
                                                    {"mission", "0", "0"},
                                                    {"mission", "0", "3", "--variant", "nope"},
                                                    {"mission", "0", "3", "--variant", "all"},
                                                    {"mission", "0"}}) {
    const Ran ran = run(FP8_SDPA_PROFILE_BINARY, arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments.back();
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
  EXPECT_FALSE(std::filesystem::exists(at("results")));
}

}  // namespace
}  // namespace fp8_sdpa::bench
