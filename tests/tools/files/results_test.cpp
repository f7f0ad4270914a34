// The result files: their content, their schemas, and how they reach the disk.
#include "benchmarks/files/results.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/files/validate.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

json schema(const std::string& name) {
  std::ifstream file(std::string(FP8_SDPA_SCHEMA_DIR) + "/" + name + ".schema.json");
  return json::parse(file);
}

RunInfo run_on(Backend backend) {
  RunInfo run = made_run();
  run.backend = backend;
  if (backend == Backend::kHost) run.device.reset();
  return run;
}

CorrectnessRecord correctness(bool pass) {
  CorrectnessRecord record = made_verdict("stage_c", "mission", pass);
  record.result.seed = 2;
  record.result.quantised.max_abs_err = 0.01;
  record.result.quantised.rel_l2 = 0.03;
  record.result.kernel.rel_l2 = 0.001;
  const reference::GateResult gate = record.result.gates.front();
  record.result.gates.insert(record.result.gates.begin(), 3, gate);
  for (int i = 0; i < 3; ++i) {
    record.result.gates[i].name = std::array{"max_abs_err", "mean_abs_err", "pct_bad"}[i];
  }
  return record;
}

PtxasReport ptxas() {
  return {
      {{"_Z6kernel", "stage_c", "sm_90a", 64, 128, 0, 8}, {"_Z5other", "", "sm_80", 30, 16, 0, 0}},
      ""};
}

std::vector<Variant> table() {
  return {{"stage_c", "", Family::kStageC, {}, {128, 40000, 32, 32}, nullptr}};
}

json document(const std::string& name, Backend backend = Backend::kDevice) {
  const RunInfo run = run_on(backend);
  if (name == "build_meta") return build_meta(run, ptxas(), table());
  if (name == "correctness_summary") return correctness_summary(run, {correctness(true)});
  return perf_baseline(run, {{made_shape("mission"),
                              2,
                              "stage_c",
                              Method::kEventsCold,
                              100,
                              {10.0, 20.0, 30.0, 40.0},
                              false,
                              {{0, 2, {1980, 0}}, {2, 2, {1500, 0x24}}}}});
}

class ResultFile : public testing::TestWithParam<const char*> {};

TEST_P(ResultFile, FitsItsSchemaOnBothBackends) {
  for (const Backend backend : {Backend::kDevice, Backend::kHost}) {
    const Status status =
        validate_document(document(GetParam(), backend), schema(GetParam()), "file");
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Methods, EachHasANameOfItsOwnThatTheSchemaKnows) {
  std::set<std::string> names;
  std::set<std::string> suffixes;
  for (const Method method : kMethods) {
    names.insert(name_of(method));
    suffixes.insert(names_of(method).suffix);
    PerfRecord record{made_shape("mission"), 2,     "stage_c",          method, 100,
                      {10.0, 20.0},          false, {{0, 2, {1980, 0}}}};
    const Status status = validate_document(perf_baseline(run_on(Backend::kDevice), {record}),
                                            schema("perf_baseline"), "file");
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(names.size(), std::size(kMethods));
  EXPECT_EQ(suffixes.size(), std::size(kMethods));
  EXPECT_EQ(method_names().size(), std::size(kMethods));
}

/// Every place of a document where an object has this member, in turn.
void for_each_member(const json& value, const json::json_pointer& at,
                     const std::function<void(const json::json_pointer&)>& visit) {
  for (const auto& [key, member] : value.items()) {
    const json::json_pointer here = value.is_array() ? at / std::stoul(key) : at / key;
    if (value.is_object()) visit(here);
    if (member.is_structured()) for_each_member(member, here, visit);
  }
}

TEST_P(ResultFile, MissesNoMember) {
  const json whole = document(GetParam());
  const json form = schema(GetParam());
  int removed = 0;
  for_each_member(whole, json::json_pointer(), [&](const json::json_pointer& at) {
    if (at.to_string().ends_with("/gates/rel_l2_pass")) return;  // not every shape has this gate
    // Files written before these were reported are still valid.
    static const std::regex kAddedLater("/kernel_(mean_abs_err|rmse|rel_rmse|rel_l1|cosine)$");
    if (std::regex_search(at.to_string(), kAddedLater)) return;
    json less = whole;
    less.at(at.parent_pointer()).erase(at.back());
    EXPECT_FALSE(validate_document(less, form, "file").ok()) << at << " may be missing";
    ++removed;
  });
  EXPECT_GT(removed, 20);
}

TEST_P(ResultFile, RefusesOtherTypesAndUnknownMembers) {
  const json whole = document(GetParam());
  const json form = schema(GetParam());
  for_each_member(whole, json::json_pointer(), [&](const json::json_pointer& at) {
    json other = whole;
    other[at] = json::array({json::object()});
    EXPECT_FALSE(validate_document(other, form, "file").ok()) << at << " may be anything";
    json more = whole;
    more.at(at.parent_pointer())["surprise"] = 1;
    EXPECT_FALSE(validate_document(more, form, "file").ok()) << "beside " << at;
  });
}

TEST_P(ResultFile, TiesTheDeviceToTheBackend) {
  json device_without = document(GetParam());
  device_without["device"] = nullptr;
  EXPECT_FALSE(validate_document(device_without, schema(GetParam()), "file").ok());
  json host_with = document(GetParam());
  host_with["backend"] = "host";
  EXPECT_FALSE(validate_document(host_with, schema(GetParam()), "file").ok());
}

TEST_P(ResultFile, ASchemaRefersToThoseBesideItAlone) {
  json form = schema(GetParam());
  for (const char* reference : {"gone.schema.json#/x", "../schemas/elite.schema.json#/x"}) {
    form["properties"]["git"]["$ref"] = reference;
    const Status status = validate_document(document(GetParam()), form, "x.json");
    EXPECT_EQ(status.message().rfind("x.json: its schema cannot be used: ", 0), 0U)
        << status.message();
  }
}

TEST_P(ResultFile, SaysInOneLineWhatIsWrong) {
  json less = document(GetParam());
  less.erase("git");
  const Status status = validate_document(less, schema(GetParam()), "x.json");
  EXPECT_EQ(status.message(), "x.json: not of its schema: <root> Missing required property 'git'.");
}

INSTANTIATE_TEST_SUITE_P(Results, ResultFile,
                         testing::Values("build_meta", "correctness_summary", "perf_baseline"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Results, SharedMemoryIsStaticAndDynamic) {
  const json kernels = document("build_meta").at("build").at("ptxas");
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].at("smem_bytes"), 40128);
  EXPECT_EQ(kernels[0].at("static_smem_bytes"), 128);
  EXPECT_EQ(kernels[0].at("dynamic_smem_bytes"), 40000);
  EXPECT_EQ(kernels[0].at("registers"), 64);
  EXPECT_EQ(kernels[0].at("spill_loads"), 8);
  EXPECT_EQ(kernels[1].at("smem_bytes"), 16);
}

TEST(Results, NamesEveryToggleOfTheBuild) {
  RunInfo run = run_on(Backend::kHost);
  run.build.toggles = {.cp_async = true, .xor_swizzle = true};
  run.build.debug_print = true;
  const json build = build_meta(run, {{}, "why"}, {}).at("build");
  for (const auto& [name, on] :
       {std::pair{"USE_KV_LUT", false}, std::pair{"USE_CP_ASYNC", true},
        std::pair{"USE_VEC_PV", false}, std::pair{"USE_WMMA_PV", false},
        std::pair{"USE_WARP_SPEC", false}, std::pair{"USE_XOR_SWIZZLE", true},
        std::pair{"DEBUG_PRINT", true}}) {
    EXPECT_EQ(build.at(name), on) << name;
  }
  EXPECT_EQ(build.at("ptxas_note"), "why");
}

TEST(Results, SummarisesCorrectness) {
  const RunInfo run = run_on(Backend::kHost);
  const json passed = correctness_summary(run, {correctness(true), correctness(true)});
  EXPECT_EQ(passed.at("all_pass"), true);
  EXPECT_EQ(passed.at("timestamp"), "1970-01-01T00:00:00Z");
  EXPECT_EQ(passed.at("results")[0].at("gates").at("max_abs_err_pass"), true);
  EXPECT_EQ(passed.at("results")[0].at("seed"), 2);
  EXPECT_EQ(passed.at("results")[0].at("rel_l2"), 0.03);
  EXPECT_EQ(passed.at("results")[0].at("failure"), nullptr);
  EXPECT_EQ(correctness_summary(run, {correctness(true), correctness(false)}).at("all_pass"),
            false);
  EXPECT_EQ(correctness_summary(run, {}).at("all_pass"), false);
}

TEST(Results, WritesErrorsThatAreNotFiniteAsNull) {
  CorrectnessRecord record = correctness(false);
  record.result.quantised.max_abs_err = std::numeric_limits<double>::infinity();
  record.result.kernel.rel_l2 = std::numeric_limits<double>::quiet_NaN();
  // As a file has it: dumped and read again.
  const json read = json::parse(correctness_summary(run_on(Backend::kHost), {record}).dump());
  EXPECT_EQ(read.at("results")[0].at("max_abs_err"), nullptr);
  EXPECT_EQ(read.at("results")[0].at("kernel_rel_l2"), nullptr);
  const Status status = validate_document(read, schema("correctness_summary"), "file");
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Results, LeavesGatesThatAreNotStatedNull) {
  CorrectnessRecord record = correctness(true);
  record.result.gates.erase(record.result.gates.begin(), record.result.gates.begin() + 3);
  const json file = correctness_summary(run_on(Backend::kHost), {record});
  EXPECT_EQ(file.at("results")[0].at("gates").at("max_abs_err_pass"), nullptr);
  EXPECT_EQ(file.at("results")[0].at("gates").at("rel_l2_pass"), true);
  const Status status = validate_document(file, schema("correctness_summary"), "file");
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Results, SummarisesPerformance) {
  const json result = document("perf_baseline").at("results")[0];
  EXPECT_EQ(result.at("method"), "events_l2_cold");
  EXPECT_EQ(result.at("warmup_iters"), 100);
  EXPECT_EQ(result.at("timed_iters"), 4);
  EXPECT_EQ(result.at("p50_us"), 25.0);
  EXPECT_EQ(result.at("p90_us"), 37.0);
  EXPECT_EQ(result.at("mean_us"), 25.0);
  EXPECT_EQ(result.at("iters_per_sec"), 40000.0);
  EXPECT_EQ(result.at("samples_us").size(), 4U);
  // 4 * 8 * 512 * 512 * 64 FLOP in 25 us.
  EXPECT_NEAR(result.at("tflops").get<double>(), 536870912 / 25e-6 / 1e12, 1e-9);
  // Drawn by repetitions: 10, 20 or 30, 40 twice or both once, so that medians are 15, 25 and 35.
  EXPECT_EQ(result.at("p50_interval_us"), json({15.0, 35.0}));
}

TEST(Results, MarksSamplesBelowTheExpectedClock) {
  const json file = document("perf_baseline");
  EXPECT_EQ(file.at("expected_sm_clock_mhz"), 1740.0);  // of 1980 and 1500
  const json result = file.at("results")[0];
  EXPECT_EQ(result.at("marked_samples"), 2);
  EXPECT_EQ(result.at("samples_us").size(), 4U) << "marked, not dropped";
  EXPECT_EQ(result.at("repetitions"), json::parse(R"([
      {"first_sample": 0, "samples": 2, "sm_clock_mhz": 1980, "throttle_reasons": [],
       "below_expected_clock": false},
      {"first_sample": 2, "samples": 2, "sm_clock_mhz": 1500,
       "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
       "below_expected_clock": true}])"));
  // Without NVML nothing is known, and nothing marked.
  const PerfRecord record = {
      made_shape("mission"),    0, "stage_c", Method::kEventsWarm, 100, {1.0, 2.0}, false,
      split_into_repetitions(2)};
  const json unknown = perf_baseline(run_on(Backend::kDevice), {record});
  EXPECT_EQ(unknown.at("expected_sm_clock_mhz"), nullptr);
  EXPECT_EQ(unknown.at("results")[0].at("repetitions")[0].at("below_expected_clock"), nullptr);
  EXPECT_EQ(unknown.at("results")[0].at("marked_samples"), 0);
  EXPECT_TRUE(validate_document(unknown, schema("perf_baseline"), "file").ok());
}

TEST(Results, CountsFlop) {
  reference::Shape shape = made_shape("mission");
  EXPECT_EQ(flop_count(shape), 536870912.0);
  shape.seq_kv = 1024;
  EXPECT_EQ(flop_count(shape), 2 * 536870912.0);
  shape.mask = Mask::kCausal;
  EXPECT_EQ(flop_count(shape), 536870912.0);
}

TEST(Origin, H200FoldersTakeOnlyWhatAnH200Measured) {
  const json measured = document("perf_baseline");
  EXPECT_TRUE(check_origin(measured, "results/h200/stage_c/perf_baseline.json").ok());
  json other = measured;
  other["device"]["name"] = "NVIDIA L4";
  const Status device = check_origin(other, "a/results/h200/x/perf_baseline.json");
  EXPECT_EQ(device.message(),
            "a/results/h200/x/perf_baseline.json: /device/name: got \"NVIDIA L4\", expected an "
            "H200 for a file under results/h200/");
  const Status host =
      check_origin(document("perf_baseline", Backend::kHost), "results/x/../h200/y.json");
  EXPECT_EQ(host.message(),
            "results/x/../h200/y.json: /backend: got \"host\", expected \"device\" for a file "
            "under results/h200/");
  EXPECT_TRUE(check_origin(other, "results/l4/perf_baseline.json").ok());
  EXPECT_TRUE(check_origin(other, "results/h200_notes/perf_baseline.json").ok());
  for (const json& odd : {json(), json::array({1}), json({{"device", json::array()}}),
                          json({{"backend", "device"}, {"device", 3}})}) {
    EXPECT_FALSE(check_origin(odd, "results/h200/x.json").ok()) << odd;
  }
}

TEST(Origin, HoldsForWhatGoogleBenchmarkWrote) {
  json file = {{"context", {{"backend", "device"}, {"device_name", "NVIDIA H200"}}}};
  EXPECT_TRUE(check_origin(file, "results/h200/bench.json").ok());
  file["context"]["device_name"] = "NVIDIA L4";
  EXPECT_FALSE(check_origin(file, "results/h200/bench.json").ok());
  file["context"]["backend"] = "host";
  EXPECT_FALSE(check_origin(file, "results/h200/bench.json").ok());
}

TEST(Validate, ChoosesTheSchemaByName) {
  const std::string folder = testing::TempDir() + "validate_by_name";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/perf_baseline.json") << document("perf_baseline");
  std::ofstream(folder + "/build_meta.json") << document("perf_baseline");
  std::ofstream(folder + "/other.json") << "{}";
  std::ofstream(folder + "/bench.json") << R"({"context": {"backend": "host"}})";
  std::ofstream(folder + "/correctness_summary.json") << "{";
  EXPECT_TRUE(validate_by_name(folder + "/perf_baseline.json", FP8_SDPA_SCHEMA_DIR).ok());
  EXPECT_TRUE(validate_by_name(folder + "/bench.json", FP8_SDPA_SCHEMA_DIR).ok());
  // What was measured before repetitions is refused.
  const Status old_version = validate_by_name(
      FP8_SDPA_SOURCE_DIR "/tests/tools/recorded/perf_baseline.json", FP8_SDPA_SCHEMA_DIR);
  EXPECT_FALSE(old_version.ok());
  EXPECT_NE(old_version.message().find("schema_version"), std::string::npos)
      << old_version.message();
  for (const char* bad :
       {"/build_meta.json", "/other.json", "/correctness_summary.json", "/none"}) {
    const Status status = validate_by_name(folder + bad, FP8_SDPA_SCHEMA_DIR);
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.message().rfind(folder + bad, 0), 0U) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  std::filesystem::remove_all(folder);
}

TEST(Ptxas, ReadsTheBuildsReport) {
  const auto report = parse_ptxas_report(
      R"([{"kernel": "_Zk", "variant": "stage_c_cp_async", "arch": "sm_90a", "registers": 64,
           "static_smem_bytes": 1, "spill_stores": 2, "spill_loads": 3}])",
      "p.json");
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->entries.size(), 1U);
  EXPECT_EQ(report->entries[0].kernel, "_Zk");
  EXPECT_EQ(report->entries[0].variant, "stage_c_cp_async");
  EXPECT_EQ(report->entries[0].arch, "sm_90a");
  EXPECT_EQ(report->entries[0].registers, 64);
  EXPECT_EQ(report->entries[0].static_smem_bytes, 1U);
  EXPECT_EQ(report->entries[0].spill_stores, 2U);
  EXPECT_EQ(report->entries[0].spill_loads, 3U);
}

TEST(Ptxas, AnAbsentReportIsNotedAndABadOneRefused) {
  const auto absent = load_ptxas_report("/nowhere/ptxas_report.json");
  ASSERT_TRUE(absent.ok());
  EXPECT_TRUE(absent->entries.empty());
  EXPECT_NE(absent->note, "");
  const auto bad = parse_ptxas_report(R"([{"kernel": 1, "variant": "", "arch": "", "registers": 1,
      "static_smem_bytes": 1, "spill_stores": 2, "spill_loads": 3}])",
                                      "p.json");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "p.json: /0/kernel: got 1, expected a string");
  EXPECT_FALSE(parse_ptxas_report("{}", "p.json").ok());
  EXPECT_FALSE(parse_ptxas_report("[3]", "p.json").ok());
}

TEST(DeviceInfo, WritesWhatItDoesNotKnowAsNull) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12040), "12.4");
  DeviceInfo info;
  info.note = "no NVML";
  const json written = to_json(info);
  EXPECT_EQ(written.at("driver_version"), nullptr);
  EXPECT_EQ(written.at("power_limit_watts"), nullptr);
  EXPECT_EQ(written.at("clocks").at("sm_mhz"), nullptr);
  EXPECT_EQ(written.at("note"), "no NVML");
  EXPECT_FALSE(describe(host_executor()).ok());
}

}  // namespace
}  // namespace fp8_sdpa::bench
