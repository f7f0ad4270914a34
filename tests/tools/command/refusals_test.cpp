// What the command lines used to take without a word: each refused, in one line.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/run/bench_filter.hpp"
#include "benchmarks/run/host_memory.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

class Refusals : public ToolTest {
 protected:
  /// Runs a binary; it must say one line that holds `text`, and nothing else, and exit with 2.
  void expect_refusal(const std::string& binary, const std::vector<std::string>& arguments,
                      const std::string& text, const std::string& environment = "") const {
    const Ran ran =
        run(binary, arguments, "CUDA_VISIBLE_DEVICES= SDPA_REQUIRE_GPU=0 " + environment);
    EXPECT_EQ(ran.exit_code, 2) << text << ": " << ran.out << ran.err;
    EXPECT_NE(ran.err.find(text), std::string::npos) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "") << text;
  }
  static nlohmann::json shipped_config() {
    return nlohmann::json::parse(read(FP8_SDPA_CONFIG_FILE));
  }
};

TEST_F(Refusals, WhatIsBehindAJsonDocument) {
  write(at("nul.json"), shipped_config().dump() + std::string("\0more", 5));
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--config", "nul.json"}, ": got a NUL, expected JSON alone");
  write(at("more.json"), shipped_config().dump() + "more");
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--config", "more.json"}, "more.json: byte ");
  make_run("results", {{"stage_c", "small", 5}});
  const std::string file = at("results/") + kCorrectnessFile;
  EXPECT_EQ(run(FP8_SDPA_VALIDATE_BINARY, {file}).exit_code, 0);
  write(file, read(file) + std::string(1U << 20U, '\0'));
  const Ran ran = run(FP8_SDPA_VALIDATE_BINARY, {file});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("got a NUL"), std::string::npos) << ran.err;
}

TEST_F(Refusals, APipeOrAFolderInPlaceOfAFile) {
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  // Whoever opens it waits for a writer: timeout ends the test.
  const Ran ran = run("/usr/bin/timeout", {"10", FP8_SDPA_RUN_BINARY, "--config", "pipe"});
  EXPECT_EQ(ran.exit_code, 2) << ran.err;
  EXPECT_NE(ran.err.find("pipe: a pipe, expected"), std::string::npos) << ran.err;
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--config", "."}, ".: Is a directory, expected");
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--qkv", "pipe"}, "pipe: ");
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--qkv", "."}, ".: ");
}

TEST_F(Refusals, AnEmptyValue) {
  for (const char* option : {"--qkv", "--out", "--config", "--shapes", "--variants", "--seeds"}) {
    expect_refusal(FP8_SDPA_RUN_BINARY, {option, ""}, std::string(option) + ": expected a value");
  }
  expect_refusal(FP8_SDPA_BENCH_BINARY, {"--config", ""}, "--config: expected a value");
}

TEST_F(Refusals, AnOutputThatCannotBeWritten) {
  const std::string script = at("full.sh");
  write(script, "exec \"$@\" >/dev/full\n");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{FP8_SDPA_RUN_BINARY, "--help"},
        {FP8_SDPA_REPORT_BINARY, "--help"},
        {FP8_SDPA_RUN_BINARY, "--backend", "host", "--shapes", "small", "--seeds", "0",
         "--variants", "sm80_mma", "--out", at("full")}}) {
    std::vector<std::string> all = {script};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ran ran = run("/bin/sh", all, "SDPA_REQUIRE_GPU=0");
    EXPECT_EQ(ran.exit_code, 2) << arguments[0] << arguments[1];
    EXPECT_NE(ran.err.find("standard output cannot be written"), std::string::npos) << ran.err;
  }
}

TEST_F(Refusals, AnotherWordThan0Or1) {
  for (const char* binary : {FP8_SDPA_RUN_BINARY, FP8_SDPA_BENCH_BINARY}) {
    const Ran ran = run(binary, {}, "SDPA_REQUIRE_GPU=yes");
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_NE(ran.err.find("SDPA_REQUIRE_GPU=\"yes\": expected 0 or 1"), std::string::npos)
        << ran.err;
  }
}

TEST_F(Refusals, AFilterOfBenchmarksThatIsWrongOrPicksNothing) {
  const auto refuse = [&](const std::string& argument, const std::string& text) {
    expect_refusal(FP8_SDPA_BENCH_BINARY, {argument}, text);
  };
  refuse("--benchmark_filter=[", "--benchmark_filter=[: not a regular expression: ");
  refuse("--benchmark_filter=sm91",
         "--benchmark_filter=sm91 matches no benchmark; one is forward/auto/");
  refuse("--benchmark_filter=-forward", "matches no benchmark");
  refuse("--benchmark_filter=host_executor", "matches no benchmark");
  refuse("--benchmark_fliter=sm90", "unknown flag --benchmark_fliter=sm90");
  refuse("--fliter=sm90", "unknown argument --fliter=sm90");
  for (const char* right :
       {"sm80_mma/small/cold", "-sm90", "small/iterations:500/manual_time$", "all"}) {
    refuse(std::string("--benchmark_filter=") + right, "a GPU is missing");
  }
  EXPECT_TRUE(check_filter("-a", {"a", "b"}).ok());
  EXPECT_FALSE(check_filter("-[ab]", {"a", "b"}).ok());
}

TEST_F(Refusals, AShapeThatTheMachineHasNoMemoryFor) {
  auto config = shipped_config();
  config["shapes"][0]["S_kv"] = std::int64_t{1} << 30U;
  write(at("large.json"), config.dump());
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--config", "large.json", "--shapes", "small"},
                 "shape small: judging it takes at least 1152.0 GiB of host memory, and this ");
  EXPECT_GT(host_memory_bytes(), std::int64_t{1} << 28U);
  const reference::Shape shape = made_shape("small");
  const std::int64_t least = least_host_bytes(shape);
  EXPECT_EQ(least, 8 * 512 * 64 * (23 + 2 * 9));
  EXPECT_TRUE(check_host_memory(shape, least).ok());
  EXPECT_EQ(check_host_memory(shape, least - 1).code(), StatusCode::kOutOfMemory);
}

TEST_F(Refusals, NameWhatIsExpectedInWordsForPeople) {
  const auto refuse = [&](const std::vector<std::string>& arguments, const std::string& text) {
    expect_refusal(FP8_SDPA_RUN_BINARY, arguments, text);
  };
  refuse({"--iters", "many"},
         "--iters: got many, expected a number from 0 to 1000000 (see --help)");
  refuse({"--iters", "-1"}, "--iters: got -1, expected a number from 0 to 1000000");
  refuse({"--iters"}, "--iters: 1 required ITERS missing");
  refuse({"--backend", "tpu"}, "--backend: got tpu, expected auto, device, host");
}

TEST_F(Refusals, AreNotOfHelpAndLists) {
  for (const auto& [binary, verb] :
       std::map<std::string, std::string>{{FP8_SDPA_RUN_BINARY, "run"},
                                          {FP8_SDPA_VALIDATE_BINARY, "validate"},
                                          {FP8_SDPA_COMPARE_BINARY, "compare"},
                                          {FP8_SDPA_ELITE_BINARY, "elite"},
                                          {FP8_SDPA_PROFILE_BINARY, "profile"},
                                          {FP8_SDPA_REPORT_BINARY, "report"}}) {
    expect_help_in_file(binary, verb);
  }
  const Ran list = run(FP8_SDPA_RUN_BINARY, {"--list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  for (const char* line : {"variants:\n", "\nsm80_mma ", "\nsm90_independent ", "\nshapes of ",
                           "\nmission      B=1 H=8 S=512 D=64; suites default"}) {
    EXPECT_NE(list.out.find(line), std::string::npos) << line << " is not in " << list.out;
  }
  EXPECT_FALSE(std::filesystem::exists(at("results")));
}

TEST_F(Refusals, AResultFolderOfAnotherRun) {
  const std::vector<std::string> arguments = {"--backend",  "host",    "--shapes", "small",
                                              "--seeds",    "0",       "--out",    at("out"),
                                              "--variants", "sm80_mma"};
  EXPECT_EQ(run(FP8_SDPA_RUN_BINARY, arguments, "SDPA_REQUIRE_GPU=0").exit_code, 0);
  const std::string before = read(at("out/") + kCorrectnessFile);
  expect_refusal(FP8_SDPA_RUN_BINARY, arguments, " of another run, expected a new or an empty one");
  EXPECT_EQ(read(at("out/") + kCorrectnessFile), before);
}

TEST_F(Refusals, NobodyReadingLeavesNoEmptyFolder) {
  const std::string script = at("unread.sh");
  write(script, "\"$@\" | exit 0\n");
  run("/bin/sh",
      {script, FP8_SDPA_RUN_BINARY, "--backend", "host", "--shapes", "small", "--variants",
       "sm80_mma"},
      "SDPA_REQUIRE_GPU=0");
  EXPECT_FALSE(std::filesystem::exists(at("results")));
}

TEST_F(Refusals, APathWithEscapesIsPrintedQuoted) {
  const std::string path = "\x1b[31mred";
  for (const std::string option : {"--qkv", "--config"}) {
    expect_refusal(FP8_SDPA_RUN_BINARY, {option, path}, "\\x1b[31mred: ");
  }
  write(at(path), "not safetensors");
  expect_refusal(FP8_SDPA_RUN_BINARY, {"--qkv", path}, "\\x1b[31mred: header length");
  const Ran ran = run(FP8_SDPA_RUN_BINARY,
                      {"--backend", "host", "--shapes", "small", "--seeds", "0", "--variants",
                       "sm80_mma", "--out", path + "_out"},
                      "SDPA_REQUIRE_GPU=0");
  EXPECT_NE(ran.out.find("results: \\x1b[31mred_out\n"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace fp8_sdpa::bench
