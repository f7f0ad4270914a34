#include "benchmarks/run/runner_options.hpp"

#include <algorithm>

#include "benchmarks/command/command_line.hpp"
#include "benchmarks/command/text.hpp"
#include "benchmarks/run/host_memory.hpp"
#include "reference/formats/text.hpp"

namespace fp8_sdpa::bench {
namespace {

using reference::Config;
using reference::Shape;

constexpr int kMaxIters = 1'000'000;
constexpr double kMaxScale = 1e6;

/// Leaves out of a default run what the host executor would take long for.
void keep_host_shapes(RunRequest& request) {
  std::vector<Shape> kept;
  std::vector<std::string> names;
  for (const Shape& shape : request.shapes) {
    if (score_count(shape) <= kHostScoreLimit) {
      kept.push_back(shape);
    } else {
      names.push_back(shape.name);
    }
  }
  if (names.empty() || kept.empty()) return;
  request.shapes = std::move(kept);
  const std::string dropped = join(names, ",");
  request.notes.push_back(
      dropped + " left out: it takes the host executor long, so it needs a GPU or --shapes " +
      dropped);
}

Status resolve_shapes(const RunnerOptions& options, RunRequest& request) {
  if (!options.qkv.empty()) return {};
  auto shapes =
      options.shapes.empty()
          ? select_suite(options.suite.empty() ? "default" : options.suite, request.config)
          : select_shapes(split_list(options.shapes), request.config);
  if (!shapes.ok()) return shapes.status();
  request.shapes = std::move(*shapes);
  const bool asked = !options.shapes.empty() || !options.suite.empty();
  if (!asked && request.choice.device.backend == Backend::kHost) keep_host_shapes(request);
  for (const Shape& shape : request.shapes) {
    if (Status s = check_host_memory(shape); !s.ok()) return s;
  }
  return {};
}

Status resolve_variants(const RunnerOptions& options, const Environment& environment,
                        RunRequest& request) {
  if (!options.variants.empty()) {
    std::vector<std::string> patterns = split_list(options.variants);
    request.automatic = std::erase(patterns, "auto") > 0;
    if (request.automatic && patterns.empty()) return {};
    auto variants_asked = select_variants(patterns, variants());
    if (!variants_asked.ok()) return variants_asked.status();
    request.variants = std::move(*variants_asked);
    return {};
  }
  const auto toggles = default_toggles(configured_toggles(), environment);
  if (!toggles.ok()) return toggles.status();
  const auto variant = variant_of(*toggles, variants());
  if (!variant.ok()) return variant.status();
  request.variants = {*variant};
  return {};
}

void resolve_performance(const RunnerOptions& options, RunRequest& request) {
  // An asked number is that number; the configuration's is the least.
  constexpr int kAtMostTimes = 4;
  request.timed_iters = options.iters.value_or(request.config.timing.timed_iters);
  request.max_timed_iters = request.timed_iters * (options.iters ? 1 : kAtMostTimes);
  if (request.choice.device.backend == Backend::kHost) {
    request.no_performance_reason = request.choice.no_gpu_reason;
  } else if (options.iters == 0) {
    request.no_performance_reason = "--iters 0";
  } else {
    request.performance = true;
  }
}

}  // namespace

std::int64_t score_count(const Shape& shape) {
  return static_cast<std::int64_t>(shape.batch) * shape.heads_q * shape.seq_q * shape.seq_kv;
}

Result<RunnerOptions> parse_runner_options(int argc, const char* const* argv) {
  RunnerOptions options;
  bool no_build = false;
  CommandLine line(
      "Judges attention kernels against their gates, times those that pass, and writes result "
      "files. Exit code 0: all passed; 1: a gate failed; 2: bad usage or configuration.",
      kRunnerName);
  const Option shapes = line.add("--shapes", options.shapes, "Names or globs, comma-separated");
  Option suite =
      line.add("--suite", options.suite, "Shapes of a suite: default, extended, all, ...");
  line.add("--seeds", options.seeds, "Comma-separated; default: the configuration's");
  line.add(
      "--variants", options.variants,
      "Names, globs, all, or auto: plan()'s own choice for each shape; default: the variant that "
      "the toggles pick, and without a GPU sm90_independent beside it");
  line.add("--iters", options.iters, "Timed launches, exactly; 0: gates only")
      .between(0, kMaxIters);
  line.add("--config", options.config, "Configuration file");
  Option qkv = line.add("--qkv", options.qkv, "Judge Q, K, V of this safetensors file");
  line.add("--qkv-layout", options.qkv_layout, "Layout of its tensors: bhsd or bshd")
      .one_of({"bhsd", "bshd"})
      .needs(qkv);
  line.add("--qkv-names", options.qkv_names, "Names of its tensors").needs(qkv);
  line.add("--qkv-scale", options.qkv_scale, "Softmax scale; 0: 1 / sqrt(head_dim)")
      .between(0, kMaxScale)
      .needs(qkv);
  line.add("--qkv-mask", options.qkv_mask, "none or causal").one_of({"none", "causal"}).needs(qkv);
  line.add("--qkv-rotate", options.qkv_way.rotate, "Quantise Q and K rotated (Hadamard)")
      .needs(qkv);
  line.add("--qkv-smooth", options.qkv_way.smooth, "Quantise K less the mean of its keys")
      .needs(qkv);
  line.add("--qkv-blocks", options.qkv_way.blocks,
           "Quantise with descales of blocks of rows, in place of heads")
      .needs(qkv);
  line.add("--qkv-costs", options.qkv_costs,
           "Say per head what their quantisation costs, and what rotation, smoothing and scales of "
           "blocks would leave")
      .needs(qkv);
  line.add("--out", options.out,
           "Result folder; default: results/fp8_wmma_baseline/<YYYYMMDD-HHMMSS>");
  line.add("--backend", options.backend, "auto, device (a GPU) or host (the executor)")
      .one_of({"auto", "device", "host"});
  line.add("--list", options.list, "Name the variants and the configuration's shapes; run nothing");
  line.add("--no-build", no_build, "For ./sdpa run: use the binary as it is");
  suite.excludes(shapes);
  qkv.excludes(shapes).excludes(suite);
  auto help = line.parse(argc, argv);
  if (!help.ok()) return help.status();
  options.help = std::move(*help);
  return options;
}

Result<RunRequest> resolve(const RunnerOptions& options, const Result<Device>& gpu,
                           const Environment& environment) {
  RunRequest request;
  auto config = reference::load_config(options.config);
  if (!config.ok()) return config.status();
  request.config = std::move(*config);
  auto choice = choose_device(options.backend, gpu, environment);
  if (!choice.ok()) return choice.status();
  request.choice = std::move(*choice);
  auto seeds = select_seeds(split_list(options.seeds), request.config);
  if (!seeds.ok()) return seeds.status();
  request.seeds = std::move(*seeds);
  if (Status status = resolve_shapes(options, request); !status.ok()) return status;
  if (Status status = resolve_variants(options, environment, request); !status.ok()) return status;
  resolve_performance(options, request);
  return request;
}

Result<RunRequest> resolve_one(const RunnerOptions& options, const Result<Device>& gpu,
                               const Environment& environment) {
  auto request = resolve(options, gpu, environment);
  if (!request.ok() || (request->shapes.size() == 1 && request->variants.size() == 1)) {
    return request;
  }
  return invalid_argument("shape " + reference::one_line(options.shapes) + " and variant " +
                          reference::one_line(options.variants) +
                          ": expected one of each, not a glob or a list");
}

}  // namespace fp8_sdpa::bench
