// The runner: its command line, its choices, its words, and what it does with kernels that are
// wrong.
#include "benchmarks/run/runner.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/measure/timer.hpp"
#include "benchmarks/run/gated_cases.hpp"
#include "benchmarks/run/run_report.hpp"
#include "benchmarks/run/runner_options.hpp"
#include "dispatch/variant_impl.hpp"
#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

const Environment kNoEnvironment = [](const char*) -> const char* { return nullptr; };

Result<RunnerOptions> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "fp8_sdpa_run");
  return parse_runner_options(static_cast<int>(arguments.size()), arguments.data());
}

Result<RunRequest> resolve_with(const std::vector<const char*>& arguments,
                                const Result<Device>& gpu) {
  const auto options = parse(arguments);
  if (!options.ok()) return options.status();
  return resolve(*options, gpu, kNoEnvironment);
}

const Result<Device> kNoGpu = unsupported("no driver");

std::string shape_names(const Result<RunRequest>& request) {
  if (!request.ok()) return request.status().message();
  std::string out;
  for (const auto& shape : request->shapes) out += shape.name + " ";
  return out;
}

TEST(RunnerOptions, ReadsEveryFlag) {
  const auto options =
      parse({"--shapes", "a,b", "--seeds", "0,1", "--variants", "all", "--iters", "7", "--config",
             "c.json", "--out", "dir", "--backend", "host", "--no-build"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->shapes, "a,b");
  EXPECT_EQ(options->seeds, "0,1");
  EXPECT_EQ(options->variants, "all");
  EXPECT_EQ(options->iters, 7);
  EXPECT_EQ(options->config, "c.json");
  EXPECT_EQ(options->out, "dir");
  EXPECT_EQ(options->backend, "host");
  EXPECT_EQ(options->help, "");
  const auto qkv = parse({"--qkv", "f.safetensors", "--qkv-layout", "bshd"});
  ASSERT_TRUE(qkv.ok()) << qkv.status().message();
  EXPECT_EQ(qkv->qkv_layout, "bshd");
  const auto help = parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_NE(help->help.find("--shapes"), std::string::npos);
}

TEST(RunnerOptions, RefusesBadUsageInOneLine) {
  const std::vector<std::vector<const char*>> bad = {{"--nonsense"},
                                                     {"stray"},
                                                     {"--iters", "-1"},
                                                     {"--iters", "many"},
                                                     {"--backend", "tpu"},
                                                     {"--shapes"},
                                                     {"--qkv-layout", "bhsd"},
                                                     {"--shapes", "a", "--suite", "all"},
                                                     {"--qkv", "f", "--shapes", "a"}};
  for (const auto& arguments : bad) {
    const auto options = parse(arguments);
    ASSERT_FALSE(options.ok()) << arguments.front();
    EXPECT_EQ(options.status().message().find('\n'), std::string::npos);
    EXPECT_NE(options.status().message().find("--help"), std::string::npos);
  }
}

TEST(RunnerResolve, RunsTheDefaultSuiteOnAGpu) {
  const auto request = resolve_with({}, made_gpu());
  EXPECT_EQ(shape_names(request), "small mission long ");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->seeds, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_TRUE(request->performance);
  EXPECT_EQ(request->timed_iters, 500);
  ASSERT_EQ(request->variants.size(), 1U);
  EXPECT_EQ(request->variants[0]->toggles, configured_toggles());
  const auto gates_only = resolve_with({"--iters", "0"}, made_gpu());
  ASSERT_TRUE(gates_only.ok());
  EXPECT_FALSE(gates_only->performance);
  EXPECT_EQ(gates_only->no_performance_reason, "--iters 0");
}

TEST(RunnerResolve, LeavesLongShapesOutOnTheHostUnlessAsked) {
  const auto request = resolve_with({}, kNoGpu);
  EXPECT_EQ(shape_names(request), "small mission ");
  ASSERT_TRUE(request.ok());
  ASSERT_EQ(request->notes.size(), 1U);
  EXPECT_EQ(request->notes[0],
            "long left out: it takes the host executor long, so it needs a GPU or --shapes long");
  EXPECT_FALSE(request->performance);
  EXPECT_EQ(request->no_performance_reason, "no driver");
  EXPECT_EQ(shape_names(resolve_with({"--shapes", "long"}, kNoGpu)), "long ");
  EXPECT_EQ(shape_names(resolve_with({"--suite", "default"}, kNoGpu)), "small mission long ");
}

TEST(RunnerResolve, TakesTheVariantOfTheEnvironmentsToggles) {
  const auto options = parse({});
  ASSERT_TRUE(options.ok());
  const Environment lut = [](const char* name) -> const char* {
    return std::strcmp(name, "USE_KV_LUT") == 0 ? "1" : nullptr;
  };
  const auto request = resolve(*options, kNoGpu, lut);
  ASSERT_TRUE(request.ok()) << request.status().message();
  ASSERT_EQ(request->variants.size(), 1U);
  EXPECT_TRUE(request->variants[0]->toggles.kv_lut);
}

CorrectnessRecord record(bool pass) {
  CorrectnessRecord made;
  made.shape.name = "small";
  made.result.seed = 0;
  made.result.variant = "stage_c";
  made.result.quantised.max_abs_err = 0.01361;
  made.result.quantised.mean_abs_err = 0.00279;
  made.result.pass = pass;
  return made;
}

TEST(Report, SpeaksTheSpecifiedLines) {
  EXPECT_EQ(correctness_line(record(true)),
            "[small   ] seed=0 variant=stage_c: max_err=0.0136, mean_err=0.0028, %bad=0.0% PASS");
  EXPECT_EQ(correctness_line(record(false)),
            "[small   ] seed=0 variant=stage_c: max_err=0.0136, mean_err=0.0028, %bad=0.0% FAIL");
  PerfRecord perf;
  perf.shape.name = "mission";
  perf.variant = "stage_c";
  perf.samples_us = {245.32, 245.32, 245.32};
  EXPECT_EQ(perf_line(perf),
            "[mission ] seed=0 variant=stage_c: p50=245.32us, p90=245.32us, std=0.00us");
  EXPECT_EQ(verdict_line({record(true), record(true)}), "ALL CORRECTNESS CHECKS PASSED (2 of 2)");
  EXPECT_EQ(verdict_line({record(true), record(false)}), "CORRECTNESS CHECKS FAILED (1 of 2)");
  EXPECT_EQ(verdict_line({}), "CORRECTNESS CHECKS FAILED (0 of 0)");
}

TEST(Report, TableHoldsTheWorstSeedAndEveryMethod) {
  CorrectnessRecord worse = record(true);
  worse.result.quantised.max_abs_err = 0.05;
  PerfRecord perf;
  perf.shape.name = "small";
  perf.variant = "stage_c";
  perf.method = Method::kGraphWarm;
  perf.samples_us = {5.0};
  EXPECT_EQ(closing_table({worse, record(true)}, {perf}),
            "variant  shape  max_err  mean_err  rel_l2  gates  warm p50 us  cold p50 us  graph p50 "
            "us\n"
            "stage_c  small   0.0500    0.0028  0.0000   PASS            -            -          "
            "5.00\n");
  EXPECT_EQ(closing_table({record(false)}, {}),
            "variant  shape  max_err  mean_err  rel_l2  gates\n"
            "stage_c  small   0.0136    0.0028  0.0000   FAIL\n");
}

/// A kernel that writes zeros: right in form, wrong in content.
Status zeros(const Problem& problem, const gpu::Queue&) {
  const auto elements = static_cast<std::size_t>(problem.batch * problem.heads_q) *
                        static_cast<std::size_t>(problem.seq_q * problem.head_dim);
  std::memset(problem.o.data, 0, elements * sizeof(std::uint16_t));
  return {};
}
Status deadlock(const Problem&, const gpu::Queue&) {
  return {StatusCode::kExecutorError, "deadlock in block 0"};
}
Status serves_all(const Problem&, const Device&) { return {}; }
Status serves_none(const Problem&, const Device&) { return unsupported("not today"); }

const detail::VariantImpl kZeros = {serves_all, {zeros}, {zeros}};
const detail::VariantImpl kDeadlock = {serves_all, {deadlock}, {deadlock}};
const detail::VariantImpl kDeclines = {serves_none, {zeros}, {zeros}};

Variant variant_with(const char* name, const detail::VariantImpl& impl) {
  return {name, "", Family::kStageC, {}, {32, 0, 32, 32}, &impl};
}

class RunnerCases : public testing::Test {
 protected:
  RunnerCases() {
    auto made = resolve_with({"--shapes", "small", "--seeds", "0,2"}, kNoGpu);
    EXPECT_TRUE(made.ok()) << made.status().message();
    request = std::move(*made);
    output = {[this](const std::string& line) { lines.push_back(line); },
              [](const std::string&) {}};
  }
  Result<RunResults> run() {
    const auto cases = pending_cases(request, {});
    if (!cases.ok()) return cases.status();
    const auto declined = declined_pairs(request, *cases);
    if (!declined.ok()) return declined.status();
    return run_cases(request, *cases, *declined, output);
  }
  RunRequest request;
  Output output;
  std::vector<std::string> lines;
};

TEST_F(RunnerCases, PassesTheShippedKernel) {
  const auto results = run();
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_TRUE(results->all_pass);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].ends_with(" PASS")) << lines[0];
  EXPECT_NE(lines[1].find("seed=2 "), std::string::npos);
  EXPECT_TRUE(results->perf.empty());
}

TEST_F(RunnerCases, FailsAnAllZeroOutputWithTheGateAndTheElement) {
  const Variant wrong = variant_with("zeros", kZeros);
  request.variants = {&wrong};
  const auto results = run();
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_FALSE(results->all_pass);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_TRUE(lines[0].ends_with(" FAIL")) << lines[0];
  for (const char* word : {"gate ", "batch", "head", "row", "dim", "got 0", "want "}) {
    EXPECT_NE(lines[1].find(word), std::string::npos) << word << " is not in: " << lines[1];
  }
}

TEST_F(RunnerCases, AKernelErrorFailsItsCaseAndFitsTheSchema) {
  const Variant wrong = variant_with("deadlock", kDeadlock);
  request.variants = {&wrong};
  const auto results = run();
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_FALSE(results->all_pass);
  EXPECT_NE(lines.at(1).find("gate executed: deadlock in block 0"), std::string::npos) << lines[1];
  RunInfo info;
  info.build = this_build();
  const auto file = nlohmann::json::parse(correctness_summary(info, results->correctness).dump());
  std::ifstream schema(std::string(FP8_SDPA_SCHEMA_DIR) + "/correctness_summary.schema.json");
  const Status status = validate_document(file, nlohmann::json::parse(schema), "file");
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(file.at("results")[0].at("max_abs_err"), nullptr);
  EXPECT_EQ(file.at("results")[0].at("gates").at("executed_pass"), false);
}

TEST_F(RunnerCases, NeverTimesAVariantThatFailed) {
  const Variant wrong = variant_with("zeros", kZeros);
  request.variants = {&wrong};
  request.performance = true;  // timing on the host would end the run with a Status
  const auto results = run();
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_TRUE(results->perf.empty());
}

TEST_F(RunnerCases, LeavesOutPairsThatAreDeclinedButNotWholeShapes) {
  const Variant declines = variant_with("declines", kDeclines);
  request.variants.push_back(&declines);
  const auto cases = pending_cases(request, {});
  ASSERT_TRUE(cases.ok());
  const auto declined = declined_pairs(request, *cases);
  ASSERT_TRUE(declined.ok());
  ASSERT_EQ(declined->size(), 1U);
  EXPECT_EQ(declined->front().reason, "not today");
  const auto results = run();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->correctness.size(), 2U);
  request.variants = {&declines};
  const auto none = run();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "shape small: no chosen variant serves it: not today");
}

TEST(RunnerColour, IsForTerminals) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  std::map<std::string, std::string> set = {{"TERM", "xterm"}};
  const Environment environment = [&](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
  EXPECT_TRUE(shows_colour(terminal, environment));
  set["NO_COLOR"] = "1";
  EXPECT_FALSE(shows_colour(terminal, environment));
  set = {{"TERM", "dumb"}};
  EXPECT_FALSE(shows_colour(terminal, environment));
  set = {};
  EXPECT_FALSE(shows_colour(terminal, environment));
  close(terminal);
  set = {{"TERM", "xterm"}};
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_FALSE(shows_colour(file, environment));
  close(file);
  EXPECT_EQ(in_colour("max_err=0.1 PASS, 1 FAILED, PASSING"),
            "max_err=0.1 \x1b[32mPASS\x1b[0m, 1 \x1b[31mFAILED\x1b[0m, PASSING");
}

TEST(RunnerAuto, TakesPlansOwnChoiceForEachShape) {
  auto request = resolve_with(
      {"--shapes", "small,mission", "--seeds", "7", "--variants", "auto,stage_c"}, kNoGpu);
  ASSERT_TRUE(request.ok()) << request.status().message();
  const auto cases = pending_cases(*request, {});
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  ASSERT_EQ(cases->size(), 2U);
  request->shapes.back().mask = Mask::kCausal;  // which the older kernels decline
  const auto causal = pending_cases(*request, {});
  ASSERT_TRUE(causal.ok()) << causal.status().message();
  for (const PendingCase& pending : *cases) {
    ASSERT_EQ(pending.variants.size(), 2U);
    EXPECT_EQ(pending.variants[0]->name, "stage_c");
  }
  EXPECT_EQ(cases->back().variants[1]->name, "sm80_mma");
  EXPECT_EQ(causal->back().variants.back()->family, Family::kSm90);
  request->shapes.front().head_dim = 80;
  const auto none = pending_cases(*request, {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("they serve head_dim 64, 128, 256"), std::string::npos)
      << none.status().message();
}

TEST_F(RunnerCases, GatedCasesHandOutOnlyWhatPassed) {
  GatedCases cases(request.config, host_executor());
  const reference::Shape& small = request.shapes.front();
  const auto good = cases.launch(*request.variants.front(), small);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_TRUE(good->check_fresh_run().ok());
  EXPECT_TRUE(good->check_output().ok());
  EXPECT_FALSE(cases.any_failed());
  const Variant wrong = variant_with("zeros", kZeros);
  for (int again = 0; again < 2; ++again) {
    const auto bad = cases.launch(wrong, small);
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.status().message().rfind("zeros on small is not timed: gate ", 0), 0U)
        << bad.status().message();
    EXPECT_TRUE(cases.any_failed());
  }
}

TEST_F(RunnerCases, GatedLaunchSeesAnOutputThatChanged) {
  GatedCases cases(request.config, host_executor());
  const auto launch = cases.launch(*request.variants.front(), request.shapes.front());
  ASSERT_TRUE(launch.ok());
  ASSERT_TRUE(launch->check_fresh_run().ok());
  auto* bits = static_cast<std::uint16_t*>(launch->workload->problem().o.data);
  bits[7] ^= 1U;
  EXPECT_FALSE(launch->check_output().ok());
  EXPECT_TRUE(launch->check_fresh_run().ok()) << "a fresh run writes all of O again";
}

TEST_F(RunnerCases, TheHostExecutorIsNeverTimedAsADevice) {
  GatedCases cases(request.config, host_executor());
  const auto launch = cases.launch(*request.variants.front(), request.shapes.front());
  ASSERT_TRUE(launch.ok());
  const auto times = time_launches(launch->plan, Method::kEventsWarm, 1, 1);
  ASSERT_FALSE(times.ok());
  EXPECT_EQ(times.status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace fp8_sdpa::bench
