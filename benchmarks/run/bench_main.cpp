// fp8_sdpa_bench: the Google Benchmark suite. Registered when it runs, from the table of variants
// and the configuration:
//   forward/<variant>/<shape>         CUDA events around each launch, L2 warm
//   forward/<variant>/<shape>/cold    the same, L2 flushed before each launch
//   forward/<variant>/<shape>/graph   per launch of a CUDA graph
//   forward/<variant>/<shape>/queued  CUDA events around each launch, queued behind a held stream
//   forward/<variant>/<shape>/rotating  the same on copies of the inputs, together larger than L2
//   forward/auto/<goal shape>         forward()'s own choice: events, graph, queued, rotating
//   host_executor/<variant>/<shape>   with --host_executor: the harness's own speed
// Every one of them judges its variant first; see gated_cases.hpp and goal_shapes.hpp.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/command/command_line.hpp"
#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/device_info.hpp"
#include "benchmarks/files/google_benchmark.hpp"
#include "benchmarks/files/results.hpp"
#include "benchmarks/measure/nvml.hpp"
#include "benchmarks/measure/roofline.hpp"
#include "benchmarks/measure/rotation.hpp"
#include "benchmarks/measure/timer.hpp"
#include "benchmarks/run/bench_filter.hpp"
#include "benchmarks/run/gated_cases.hpp"
#include "benchmarks/run/goal_shapes.hpp"
#include "benchmarks/run/runner_options.hpp"
#include "reference/formats/text.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;
using reference::Shape;

constexpr double kMicroseconds = 1e6;

/// What all benchmarks of one backend share.
struct Suite {
  reference::Config config;
  GatedCases cases;
  GatedGoals goals;
  Device device;
  Result<Nvml> nvml;  ///< or why there are no clocks
  Suite(const reference::Config& c, const Device& d)
      : config(c), cases(c, d), goals(c, d), device(d), nvml(Nvml::open(d)) {}

  bool failed() const { return cases.any_failed() || failed_later; }
  bool failed_later = false;  ///< a goal shape's gate; a launch error; an output that changed
};

void skip(benchmark::State& state, Suite& suite, const Status& status) {
  suite.failed_later = true;
  state.SkipWithError(status.message().c_str());
}

void set_counters(benchmark::State& state, const PerfRecord& record) {
  const Summary summary = summarise(record.samples_us);
  state.counters["p50_us"] = summary.p50;
  state.counters["p90_us"] = summary.p90;
  state.counters["mean_us"] = summary.mean;
  state.counters["std_us"] = summary.std;
  state.counters["tflops"] = tflops(record.shape, summary.p50);
  const auto clock = record.repetitions.front().clocks.sm_clock_mhz;
  if (clock) state.counters["sm_clock_mhz"] = *clock;
  if (const char* name = names_of(record.method).counter; *name != '\0') {
    state.counters[name] = summary.p50;
  }
}

/// Warms up, and times as many launches as the benchmark has iterations. None: it was skipped.
std::vector<double> time_iterations(benchmark::State& state, Suite& suite, const Plan& plan,
                                    Method method) {
  auto samples = time_launches(plan, method, suite.config.timing.warmup_iters,
                               static_cast<int>(state.max_iterations));
  if (!samples.ok()) {
    skip(state, suite, samples.status());
    return {};
  }
  auto next = samples->begin();
  for (auto _ : state) state.SetIterationTime(*next++ / kMicroseconds);
  return std::move(*samples);
}

/// What was just timed, as one repetition, with the clocks of now.
PerfRecord record_of(const Suite& suite, std::string_view variant, const Shape& shape,
                     Method method, std::vector<double> samples_us) {
  const auto count = static_cast<int>(samples_us.size());
  const auto clocks = suite.nvml.ok() ? suite.nvml->read_clocks() : ClockReading{};
  return {shape,
          suite.config.seeds.front(),
          std::string(variant),
          method,
          suite.config.timing.warmup_iters,
          std::move(samples_us),
          false,
          {{0, count, clocks}}};
}

/// One repetition: judge, warm up, time each launch, and look at the output again.
void time_forward(benchmark::State& state, Suite& suite, const Variant& variant, const Shape& shape,
                  Method method) {
  const auto launch = suite.cases.launch(variant, shape);
  if (!launch.ok()) return skip(state, suite, launch.status());
  if (Status s = launch->check_fresh_run(); !s.ok()) return skip(state, suite, s);
  std::vector<double> samples_us = time_iterations(state, suite, launch->plan, method);
  if (samples_us.empty()) return;
  const PerfRecord record = record_of(suite, variant.name, shape, method, std::move(samples_us));
  if (Status s = launch->check_output(); !s.ok()) return skip(state, suite, s);
  if (Status s = check_roofline(record, suite.device); !s.ok()) return skip(state, suite, s);
  set_counters(state, record);
}

/// Whether inputs that go round are another case than inputs that stay.
bool may_rotate(const Shape& shape, const Device& device) {
  const auto l2 = l2_bytes(device);
  return l2.ok() && rotating_copies(input_bytes(problem_of(shape, Dtype::kE4M3)), *l2) > 1;
}

/// Samples of a method that stands beside a goal shape's own: a graph has many launches in each.
int samples_beside(Method method, const reference::Timing& timing) {
  return std::max(1, timing.timed_iters / (method == Method::kGraphWarm ? kGraphLaunches : 1));
}

/// The same for a goal shape, with the library's choice of variant as the label: single launches
/// between events, and the medians of other methods beside them.
void time_goal(benchmark::State& state, Suite& suite, const Shape& shape) {
  const auto launch = suite.goals.launch(shape);
  if (!launch.ok()) return skip(state, suite, launch.status());
  state.SetLabel(std::string(launch->plan.variant().name));
  if (Status s = launch->check_fresh_run(); !s.ok()) return skip(state, suite, s);
  const std::string_view variant = launch->plan.variant().name;
  std::vector<double> samples_us = time_iterations(state, suite, launch->plan, Method::kEventsWarm);
  if (samples_us.empty()) return;
  std::vector<PerfRecord> records;
  records.push_back(record_of(suite, variant, shape, Method::kEventsWarm, std::move(samples_us)));
  for (const Method method : {Method::kGraphWarm, Method::kQueuedWarm, Method::kQueuedRotating}) {
    if (method == Method::kQueuedRotating && !may_rotate(shape, suite.device)) continue;
    auto beside = time_launches(launch->plan, method, suite.config.timing.warmup_iters,
                                samples_beside(method, suite.config.timing));
    if (!beside.ok()) return skip(state, suite, beside.status());
    if (Status s = launch->check_output(); !s.ok()) return skip(state, suite, s);
    records.push_back(record_of(suite, variant, shape, method, std::move(*beside)));
  }
  for (const PerfRecord& record : records) {
    if (Status s = check_roofline(record, suite.device); !s.ok()) return skip(state, suite, s);
  }
  set_counters(state, records.front());
  for (const PerfRecord& record : std::span(records).subspan(1)) {
    state.counters[names_of(record.method).counter] = summarise(record.samples_us).p50;
  }
}

/// Wall time of the host executor: how fast the harness is, and nothing about a GPU.
void time_host_executor(benchmark::State& state, Suite& suite, const Variant& variant,
                        const Shape& shape) {
  const auto launch = suite.cases.launch(variant, shape);
  if (!launch.ok()) return skip(state, suite, launch.status());
  const auto workspace = reference::Workspace::make(launch->plan);
  if (!workspace.ok()) return skip(state, suite, workspace.status());
  for (auto _ : state) {
    if (Status s = forward(launch->plan, workspace->data(), nullptr); !s.ok()) {
      skip(state, suite, s);
      break;
    }
  }
  if (Status s = launch->check_output(); !s.ok()) skip(state, suite, s);
}

/// Calls `use` for each (variant, shape) that the device serves, shape by shape.
template <class Use>
void for_each_pair(const std::vector<Shape>& shapes, const Device& device, const Use& use) {
  for (const Shape& shape : shapes) {
    for (const Variant& variant : variants()) {
      const Status served = variant.supports(problem_of(shape, variant), device);
      if (served.ok()) {
        use(variant, shape);
      } else {
        std::fprintf(stderr, "note: %s declines %s: %s\n", std::string(variant.name).c_str(),
                     shape.name.c_str(), served.message().c_str());
      }
    }
  }
}

void register_forward(Suite& suite, const Device& device) {
  for_each_pair(suite.config.shapes, device, [&](const Variant& variant, const Shape& shape) {
    for (const Method method : kMethods) {
      if (method == Method::kQueuedRotating && !may_rotate(shape, device)) continue;
      const std::string name = series_name(std::string(variant.name), shape.name, method);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&suite, &variant, shape, method](benchmark::State& state) {
                                     time_forward(state, suite, variant, shape, method);
                                   })
          ->UseManualTime()
          ->Iterations(suite.config.timing.timed_iters)
          ->Unit(benchmark::kMicrosecond);
    }
  });
}

std::string name_of_series(const Shape& shape) {
  return series_name("auto", shape.name, Method::kEventsWarm);
}

void register_goals(Suite& suite) {
  for (const Shape& shape : goal_shapes()) {
    benchmark::RegisterBenchmark(
        name_of_series(shape).c_str(),
        [&suite, shape](benchmark::State& state) { time_goal(state, suite, shape); })
        ->UseManualTime()
        ->Iterations(suite.config.timing.timed_iters)
        ->Unit(benchmark::kMicrosecond);
  }
}

std::string host_series(const std::string& variant, const Shape& shape) {
  return "host_executor/" + variant + "/" + shape.name;
}

/// Every series that there can be, by its full name, on a device that serves every shape.
std::vector<std::string> known_series(const reference::Config& config, bool with_host_executor) {
  const std::string timed =
      "/iterations:" + std::to_string(config.timing.timed_iters) + "/manual_time";
  std::vector<std::string> names;
  for (const Shape& shape : goal_shapes()) names.push_back(name_of_series(shape) + timed);
  for (const Shape& shape : config.shapes) {
    for (const Variant& variant : variants()) {
      const std::string name(variant.name);
      for (const Method method : kMethods) {
        names.push_back(series_name(name, shape.name, method) + timed);
      }
      if (with_host_executor) names.push_back(host_series(name, shape) + "/real_time");
    }
  }
  return names;
}

/// Without a GPU: what is not there to be timed.
void say_what_is_left_out(const std::string& reason) {
  std::fprintf(stderr, "performance needs a GPU (%s); the harness itself is timed\n",
               reason.c_str());
  std::string left_out = "left out: forward/<variant>/<shape>";
  for (const Shape& shape : goal_shapes()) left_out += ", " + name_of_series(shape);
  std::fprintf(stderr, "%s\n", left_out.c_str());
}

void register_host_executor(Suite& suite, const Device& device) {
  std::vector<Shape> shapes;
  for (const Shape& shape : suite.config.shapes) {
    if (score_count(shape) <= kHostScoreLimit) shapes.push_back(shape);
  }
  for_each_pair(shapes, device, [&](const Variant& variant, const Shape& shape) {
    const std::string name = host_series(std::string(variant.name), shape);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&suite, &variant, shape](benchmark::State& state) {
                                   time_host_executor(state, suite, variant, shape);
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  });
}

/// The run's device and build, as the JSON's context.
void add_context(const Device& device, const DeviceInfo* info) {
  for (const auto& [key, value] : benchmark_context(device, info)) {
    benchmark::AddCustomContext(key, value);
  }
}

struct BenchOptions {
  std::string config = default_config_path();
  bool host_executor = false;
  std::vector<std::string> rest;  ///< Google Benchmark's
};

Result<BenchOptions> parse(int argc, char** argv, std::string& help) {
  BenchOptions options;
  CommandLine line(
      "Times attention kernels that have passed their gates. Takes the --benchmark_* "
      "flags of Google Benchmark too: --benchmark_filter=REGEX, --benchmark_out=FILE, "
      "--benchmark_repetitions=N, --benchmark_list_tests.",
      "fp8_sdpa_bench");
  line.add("--config", options.config, "Configuration file");
  line.add("--host_executor", options.host_executor,
           "Also time the host executor itself (the speed of the harness)");
  line.keep_others();
  auto parsed = line.parse(argc, argv);
  if (!parsed.ok()) return parsed.status();
  help = std::move(*parsed);
  options.rest = line.others();
  for (const std::string& argument : options.rest) {
    // Google Benchmark's own complaint would be several lines.
    if (argument.rfind("--benchmark_", 0) != 0 && argument.rfind("--v=", 0) != 0) {
      return invalid_argument("unknown argument " + reference::one_line(argument) +
                              ", expected --config, --host_executor or --benchmark_*");
    }
  }
  return options;
}

/// Whether Google Benchmark is asked to run repetitions interleaved: its file does not say.
bool in_turns(const BenchOptions& options) {
  const std::string flag = "--benchmark_enable_random_interleaving";
  return std::any_of(options.rest.begin(), options.rest.end(), [&](const std::string& argument) {
    return argument == flag || argument == flag + "=true" || argument == flag + "=1";
  });
}

/// Hands Google Benchmark its flags.
Status hand_over_flags(const BenchOptions& options, char* program) {
  std::vector<std::string> rest = options.rest;
  std::vector<char*> arguments = {program};
  for (std::string& argument : rest) arguments.push_back(argument.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (count > 1) return invalid_argument("unknown flag " + reference::one_line(arguments[1]));
  return {};
}

/// Runs what is registered.
Result<int> run_registered() {
  const std::size_t run = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (run == 0) return invalid_argument("--benchmark_filter matches no benchmark");
  return kExitPass;
}

Result<int> run_tool(int argc, char** argv) {
  std::string help;
  const auto options = parse(argc, argv, help);
  if (!options.ok()) return options.status();
  if (!help.empty()) {
    std::fputs(help.c_str(), stdout);
    return kExitPass;
  }
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  const auto config = reference::load_config(options->config);
  if (!config.ok()) return config.status();
  if (Status s = hand_over_flags(*options, argv[0]); !s.ok()) return s;
  const auto series = known_series(*config, options->host_executor);
  if (Status s = check_filter(benchmark::GetBenchmarkFilter(), series); !s.ok()) return s;
  const auto choice = choose_device("auto", current_device(), process_environment());
  if (!choice.ok()) return choice.status();
  const bool gpu = choice->device.backend == Backend::kDevice;
  if (!options->host_executor) {
    if (Status s = require_gpu(*choice); !s.ok()) return s;
  }
  if (!gpu) say_what_is_left_out(choice->no_gpu_reason);
  Suite on_device(*config, choice->device);
  Suite on_host(*config, host_executor());
  if (gpu) {
    const auto info = describe(choice->device);
    if (!info.ok()) return info.status();
    add_context(choice->device, &*info);
    register_forward(on_device, choice->device);
    register_goals(on_device);
  } else {
    add_context(host_executor(), nullptr);
  }
  benchmark::AddCustomContext("random_interleaving", in_turns(*options) ? "true" : "false");
  if (options->host_executor) register_host_executor(on_host, host_executor());
  const auto exit_code = run_registered();
  // Google Benchmark ends well after SkipWithError; a failed gate must not.
  const bool failed = on_device.failed() || on_host.failed();
  if (failed) return kExitFail;
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  return run_guarded("fp8_sdpa_bench", [&] { return run_tool(argc, argv); });
}
