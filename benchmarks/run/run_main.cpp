// fp8_sdpa_run: the main job. Gates first; then, on a GPU, the times of what passed; result files.
#include <cstdio>
#include <optional>
#include <string>

#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/measure/phase.hpp"
#include "benchmarks/measure/roofline.hpp"
#include "benchmarks/measure/timing.hpp"
#include "benchmarks/run/run_report.hpp"
#include "benchmarks/run/runner.hpp"
#include "reference/judge/quantisation_cost.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

/// The Hopper kernel beside the ladder's, where nobody asked for a variant and no GPU is there to
/// choose by; null where it is not added. Shapes that it does not serve go without it.
const Variant* add_hopper(const RunnerOptions& options, RunRequest& request) {
  if (!options.variants.empty() || request.choice.device.backend != Backend::kHost) return nullptr;
  const auto hopper = find_variant("sm90_independent");
  if (!hopper.ok()) return nullptr;
  request.variants.push_back(*hopper);
  return *hopper;
}

void print_opening(const RunRequest& request, const RunInfo& run,
                   const std::vector<Declined>& declined, const Variant* unasked) {
  print_line("backend: " + std::string(name_of(run.backend)) + " (" + request.choice.device.name +
             ")" + (run.device ? "" : ": " + request.choice.no_gpu_reason));
  if (run.device && !run.device->note.empty()) print_line("note: " + run.device->note);
  if (const std::string note = roofline_note(request.choice.device);
      request.performance && !note.empty()) {
    print_line("note: " + note);
  }
  for (const std::string& note : request.notes) print_line("note: " + note);
  for (const Declined& pair : declined) {
    if (pair.variant == unasked) continue;
    print_line("note: " + std::string(pair.variant->name) + " declines " + pair.shape + ": " +
               pair.reason);
  }
}

/// What quantisation costs the heads of a file's tensors: printed, and all of it in a file.
Status say_costs(const PendingCase& pending, const std::string& folder) {
  constexpr std::size_t kPrinted = 8;
  if (pending.source->has_codes) {
    return invalid_argument("--qkv-costs: " + reference::one_line(pending.source->file) +
                            " has codes, whose quantisation has cost already; give it what they "
                            "were made of");
  }
  const auto data = pending.make();
  if (!data.ok()) return data.status();
  Progress()("what quantisation costs");
  const auto costs = reference::quantisation_costs(**data);
  print_line(
      "quantisation alone, no kernel: ||O' - O|| / ||O|| of each head, the worst first; rotated, "
      "smoothed: with these options of fp8_sdpa/quantise.hpp\n" +
      reference::cost_table(costs, kPrinted));
  return replace_file(folder + "/QUANTISATION.md", reference::cost_table(costs, costs.size()));
}

Result<int> run_tool(int argc, char** argv) {
  const auto options = parse_runner_options(argc, argv);
  if (!options.ok()) return options.status();
  if (!options->help.empty()) {
    std::fputs(options->help.c_str(), stdout);
    return kExitPass;
  }
  if (options->list) {
    const auto config = reference::load_config(options->config);
    if (!config.ok()) return config.status();
    std::fputs(listing(*config, variants()).c_str(), stdout);
    return kExitPass;
  }
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  if (Status s = check_toggle_names(environment_names()); !s.ok()) return s;
  auto request = [&] {
    const Phase phase(kPhaseLoadConfig);
    return resolve(*options, current_device(), process_environment());
  }();
  if (!request.ok()) return request.status();
  const Variant* const hopper = add_hopper(*options, *request);
  const auto cases = pending_cases(*request, *options);
  if (!cases.ok()) return cases.status();
  const auto declined = declined_pairs(*request, *cases);
  if (!declined.ok()) return declined.status();
  const auto run = describe_run(request->choice.device);
  if (!run.ok()) return run.status();
  const auto ptxas = load_ptxas_report();
  if (!ptxas.ok()) return ptxas.status();
  auto directory = options->out.empty() ? ResultDirectory::open_new(kResultRoot)
                                        : ResultDirectory::open_empty(options->out);
  if (!directory.ok()) return directory.status();

  print_opening(*request, *run, *declined, hopper);
  if (cases->front().source != nullptr) print_line(lines_of(*cases->front().source));
  if (options->qkv_costs) {
    if (Status s = say_costs(cases->front(), directory->path()); !s.ok()) return s;
  }
  const auto results = run_cases(*request, *cases, *declined, {print_line, Progress()});
  if (!results.ok()) return results.status();
  {
    const Phase phase(kPhaseWriteResults);
    Status written = write_results(*directory, *run, *ptxas, results->correctness,
                                   request->performance ? &results->perf : nullptr);
    if (!written.ok()) return written;
  }
  for (const CorrectnessRecord& record : results->correctness) {
    if (record.source == nullptr || !record.result.pass) continue;
    const std::string path = directory->path() + "/o_" + record.result.variant + ".safetensors";
    if (Status s =
            write_output(*record.source, record.result.output, record.result.log_sum_exp, path);
        !s.ok()) {
      return s;
    }
    print_line("O of " + record.result.variant + ": " + reference::one_line(path));
  }
  if (!request->performance) {
    print_line("performance skipped: " + request->no_performance_reason);
  }
  const auto max_mhz = run->device ? run->device->nvml.sm_clock_max_mhz : std::nullopt;
  for (const std::string& note : clock_notes(results->perf, max_mhz)) print_line("note: " + note);
  print_line("\n" + closing_table(results->correctness, results->perf));
  print_line("results: " + reference::one_line(directory->path()));
  print_line(verdict_line(results->correctness));
  return results->all_pass ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  return run_guarded(kRunnerName, [&] { return run_tool(argc, argv); });
}
