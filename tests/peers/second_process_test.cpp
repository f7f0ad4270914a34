// The second process, what a contest makes of its times, and the tools without a GPU.
#include <algorithm>
#include <cmath>

#include "benchmarks/ceilings/device_limits.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/subprocess.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/peers/contest.hpp"
#include "benchmarks/peers/torch_peers.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

Result<json> ask_shell(const std::string& script, const json& request = {{"command", "hello"}}) {
  auto process = Coprocess::start({"/bin/sh", "-c", script});
  if (!process.ok()) return process.status();
  return (*process)->ask(request);
}

TEST(Coprocess, AnswersLineByLine) {
  auto process = Coprocess::start({"cat"});
  ASSERT_TRUE(process.ok());
  for (int i = 0; i < 3; ++i) {
    const json request = {{"number", i}, {"text", "two\nlines"}};
    const auto answer = (*process)->ask(request);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(*answer, request);
  }
}

TEST(Coprocess, TellsWhatIsWrongInOneLine) {
  struct Case {
    const char* script;
    const char* expected;
  };
  for (const Case& c : {Case{"exit 0", "has ended"}, Case{"read x; echo no json", "no json"},
                        Case{"read x; echo '{\"error\": \"broken\"}'", "broken"},
                        Case{"read x; echo '[1]'", "[1]"}}) {
    const auto answer = ask_shell(c.script);
    ASSERT_FALSE(answer.ok()) << c.script;
    EXPECT_NE(answer.status().message().find(c.expected), std::string::npos)
        << answer.status().message();
    EXPECT_EQ(answer.status().message().find('\n'), std::string::npos);
  }
  auto silent = Coprocess::start({"sleep", "1000"});
  ASSERT_TRUE(silent.ok());
  const auto none = (*silent)->ask({{"command", "hello"}}, /*timeout_seconds=*/1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "the second process has not answered for 1 s and was ended");
  const auto gone = Coprocess::start({"no_such_program_of_ours"});
  ASSERT_FALSE(gone.ok());
  EXPECT_NE(gone.status().message().find("not on PATH"), std::string::npos);
}

class TorchProcess : public ToolTest {
 protected:
  /// Stands for torch_sdpa.py: checks what it is given, serves one backend and declines another.
  std::string stand_in() const {
    write(at("stand_in.py"), R"(
import json, os, sys
for line in sys.stdin:
    r = json.loads(line)
    out = {"ok": True}
    if r["command"] == "hello":
        out.update(torch="1.2", device="a GPU")
    elif r["command"] == "case":
        size = r["B"] * r["H_kv"] * r["S_kv"] * r["D"]
        good = os.path.getsize(r["k"]["file"]) == size and r["k"]["descale"] == 2.0 ** -8
        case = r
        out["backends"] = {"peer/torch_flash": None if good else "wrong case",
                           "peer/torch_cudnn": "not today"}
    elif r["command"] == "output":
        with open(r["file"], "wb") as file:
            file.write(b"\x80\x3f" * (case["B"] * case["H"] * case["S"] * case["D"]))
    elif r["method"] == "graph_l2_warm":
        out["samples_us"] = [1.5] * r["samples"]
    else:
        out = {"error": "no " + r["method"]}
    print(json.dumps(out), flush=True)
)");
    return at("stand_in.py");
  }
};

TEST_F(TorchProcess, IsGivenTheCaseAndGivesOutputsAndTimes) {
  if (find_program("python3").empty()) GTEST_SKIP() << "no python3 on PATH";
  auto torch = TorchPeers::start("python3", stand_in());
  ASSERT_TRUE(torch.ok()) << torch.status().message();
  EXPECT_EQ((*torch)->description(), "PyTorch 1.2 on a GPU");
  reference::Shape shape = made_shape("mission");
  shape.seq_q = shape.seq_kv = 64;
  const auto sampled = sample_case(shape, 0);
  ASSERT_TRUE(sampled.ok());
  std::vector<DeclinedPeer> declined;
  const auto serving = (*torch)->set_case(*sampled, root.string(), declined);
  ASSERT_TRUE(serving.ok()) << serving.status().message();
  EXPECT_EQ(*serving, std::vector<std::string>{"peer/torch_flash"});
  ASSERT_EQ(declined.size(), 1U);
  EXPECT_EQ(declined.front().reason, "not today");
  const auto bits = (*torch)->output("peer/torch_flash", root.string());
  ASSERT_TRUE(bits.ok()) << bits.status().message();
  EXPECT_EQ(decode_output(*bits, Dtype::kBFloat16, 1.0),
            std::vector<float>(static_cast<std::size_t>(8 * 64 * 64), 1.0F));
  const auto times = (*torch)->time("peer/torch_flash", Method::kGraphWarm, 3, 4);
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(*times, std::vector<double>(4, 1.5));
  const auto none = (*torch)->time("peer/torch_flash", Method::kEventsCold, 3, 4);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "no events_l2_cold");
  // The files that were passed are gone.
  EXPECT_FALSE(std::filesystem::exists(at("q.codes")) || std::filesystem::exists(at("o.bits")));
}

/// The real script on a machine without PyTorch or without a GPU: one line, and no error exit.
TEST_F(TorchProcess, ScriptSaysWhatItLacks) {
  if (find_program("python3").empty()) GTEST_SKIP() << "no python3 on PATH";
  write(at("requests"), "{\"command\": \"hello\"}\nno json\n{\"command\": \"quit\"}\n");
  const Ran ran = run("/bin/sh", {"-c", "python3 \"$0\" <requests",
                                  FP8_SDPA_SOURCE_DIR "/benchmarks/peers/torch_sdpa.py"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  std::istringstream lines(ran.out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line)) << ran.err;
  const json hello = json::parse(line, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(hello.is_object()) << line;
  EXPECT_TRUE(hello.contains("ok") || hello.at("error").is_string()) << line;
  // What it cannot read is an answer too, not its end.
  ASSERT_TRUE(std::getline(lines, line)) << ran.err;
  const json refused = json::parse(line, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(refused.is_object()) << line;
  EXPECT_TRUE(refused.contains("error")) << line;
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

TEST(Contest, TimesLargeShapesLessOften) {
  reference::Shape shape = made_shape("mission");
  EXPECT_EQ(launches_for(shape, 500), 500);
  shape.seq_q = shape.seq_kv = 65536;
  EXPECT_EQ(launches_for(shape, 500), 20);
  EXPECT_EQ(launches_for(shape, 5), 5);
  EXPECT_EQ(graph_samples_for(500), 100);
  EXPECT_EQ(graph_samples_for(40), 10);
  EXPECT_EQ(graph_samples_for(5), 5);
}

TEST(Contest, TablesCompareThePeerWithOurFastest) {
  const auto record = [](const char* variant, const char* shape, double us, Method method) {
    PerfRecord made;
    made.shape.name = shape;
    made.variant = variant;
    made.method = method;
    made.samples_us = {us};
    return made;
  };
  const std::vector<PerfRecord> records = {
      record("slow", "mission", 20, Method::kGraphWarm),
      record("fast", "mission", 10, Method::kGraphWarm),
      record("fast", "mission", 1, Method::kEventsWarm),
      record("peer/cudnn_fp8", "mission", 25, Method::kGraphWarm)};
  const std::string tables = contest_tables(records, Method::kGraphWarm);
  EXPECT_NE(tables.find("## peer/cudnn_fp8, graph_l2_warm"), std::string::npos) << tables;
  EXPECT_NE(tables.find("| mission | 25.00 | 10.00 | 2.50x |"), std::string::npos) << tables;
  EXPECT_NE(tables.find(">= 2x"), std::string::npos);
}

class PeerFiles : public ToolTest {};

TEST_F(PeerFiles, HavePeersBesideOurs) {
  make_run("run", {{"stage_c", "mission", 10.0}, {"peer/cudnn_fp8", "mission", 20.0, {}, false}});
  for (const char* name : {kCorrectnessFile, kPerfFile}) {
    const Status valid = validate_by_name(at("run/") + name, default_schema_folder());
    EXPECT_TRUE(valid.ok()) << valid.message();
  }
}

MeasuredLimits made_limits() {
  MeasuredLimits made;
  made.measured.push_back({"fma",
                           "what it is",
                           LimitUnit::kFlopPerSecond,
                           4e9,
                           {100, 200, 300},
                           /*cycles=*/1e5});
  made.measured.push_back({"empty_launch", "what it is", LimitUnit::kMicroseconds, 1, {3, 4, 5}});
  made.left_out.push_back({"fp8_gemm", "no library"});
  return made;
}

class CeilingsFile : public ToolTest {};

TEST_F(CeilingsFile, HasRatesAndTimesOfItsSchema) {
  const auto document = limits_document(made_run(), made_limits(), 132);
  write(at(kCeilingsFile), document.dump());
  const Status valid = validate_by_name(at(kCeilingsFile), default_schema_folder());
  EXPECT_TRUE(valid.ok()) << valid.message();
  const json& fma = document.at("/results/0"_json_pointer);
  EXPECT_DOUBLE_EQ(fma.at("value").get<double>(), 4e9 / 200e-6);
  EXPECT_DOUBLE_EQ(fma.at("per_clock_per_sm").get<double>(), 4e9 / 1e5 / 132);
  const json& empty = document.at("/results/1"_json_pointer);
  EXPECT_DOUBLE_EQ(empty.at("value").get<double>(), 4);
  EXPECT_TRUE(empty.at("per_clock_per_sm").is_null());
  const std::string table = limits_table(made_limits(), 132);
  EXPECT_NE(table.find("| fma | 20.0 TFLOP/s |"), std::string::npos) << table;
  EXPECT_NE(table.find("fp8_gemm is left out: no library"), std::string::npos) << table;
}

TEST_F(CeilingsFile, IsRefusedWithoutAValue) {
  auto document = limits_document(made_run(), made_limits(), 132);
  document["results"][0].erase("value");
  write(at(kCeilingsFile), document.dump());
  EXPECT_FALSE(validate_by_name(at(kCeilingsFile), default_schema_folder()).ok());
}

/// Each tool whose times are a GPU's, without one: one line that says so, and exit code 2.
class WithoutGpu : public ToolTest, public testing::WithParamInterface<const char*> {};

TEST_P(WithoutGpu, DeclinesInOneLine) {
  std::vector<std::string> arguments;
  if (GetParam() == std::string(FP8_SDPA_TIMELINE_BINARY)) {
    arguments = {"small", "0", "--variant", "stage_c"};
  }
  const Ran ran = run(GetParam(), arguments, "CUDA_VISIBLE_DEVICES= SDPA_REQUIRE_GPU=0");
  EXPECT_EQ(ran.exit_code, 2) << ran.err;
  EXPECT_NE(ran.err.find(": nothing is measured: a GPU is missing ("), std::string::npos)
      << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  const Ran required = run(GetParam(), arguments, "CUDA_VISIBLE_DEVICES= SDPA_REQUIRE_GPU=1");
  EXPECT_EQ(required.exit_code, 2);
  EXPECT_NE(required.err.find("SDPA_REQUIRE_GPU=1"), std::string::npos) << required.err;
  EXPECT_FALSE(std::filesystem::exists(at("results"))) << "an empty result folder was left";
}

TEST_P(WithoutGpu, SaysItsHelp) {
  const std::string name = std::filesystem::path(GetParam()).filename();
  expect_help_in_file(GetParam(), name.substr(std::string("fp8_sdpa_").size()));
}

INSTANTIATE_TEST_SUITE_P(Tools, WithoutGpu,
                         testing::Values(FP8_SDPA_BENCH_BINARY, FP8_SDPA_CEILINGS_BINARY,
                                         FP8_SDPA_SERVING_BINARY, FP8_SDPA_PEERS_BINARY,
                                         FP8_SDPA_SWEEP_BINARY, FP8_SDPA_TIMELINE_BINARY),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

}  // namespace
}  // namespace fp8_sdpa::bench
