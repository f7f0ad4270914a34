// fp8_sdpa_run: the main job. Gates first; then, on a GPU, the times of what passed; result files.
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "benchmarks/command/exit_codes.hpp"
#include "benchmarks/measure/phase.hpp"
#include "benchmarks/run/run_report.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/measure/roofline.hpp"
#include "benchmarks/run/runner.hpp"
#include "benchmarks/measure/timing.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

int refuse(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "fp8_sdpa_run: %s\n", message.c_str());
  return kExitBadUsage;
}

void print_line(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Tells what a long run is doing, once the first two seconds are over and then as often.
class Progress {
 public:
  void operator()(const std::string& what) {
    constexpr std::chrono::seconds kInterval(2);
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kInterval) return;
    last_ = now;
    std::fprintf(stderr, "... %s\n", what.c_str());
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void print_opening(const RunRequest& request, const RunInfo& run,
                   const std::vector<Declined>& declined) {
  print_line("backend: " + std::string(name_of(run.backend)) + " (" + request.choice.device.name +
             ")" + (run.device ? "" : ": " + request.choice.no_gpu_reason));
  if (run.device && !run.device->note.empty()) print_line("note: " + run.device->note);
  if (const std::string note = roofline_note(request.choice.device);
      request.performance && !note.empty()) {
    print_line("note: " + note);
  }
  for (const std::string& note : request.notes) print_line("note: " + note);
  for (const Declined& pair : declined) {
    print_line("note: " + std::string(pair.variant->name) + " declines " + pair.shape + ": " +
               pair.reason);
  }
}

Status write_results(ResultDirectory& directory, const RunInfo& run, const RunRequest& request,
                     const RunResults& results, const PtxasReport& ptxas) {
  const Phase phase(kPhaseWriteResults);
  if (Status s = directory.write(kBuildMetaFile, build_meta(run, ptxas, variants())); !s.ok()) {
    return s;
  }
  const auto summary = correctness_summary(run, results.correctness);
  if (Status s = directory.write(kCorrectnessFile, summary); !s.ok()) return s;
  if (!request.performance) return {};
  return directory.write(kPerfFile, perf_baseline(run, results.perf));
}

int run_tool(int argc, char** argv) {
  const auto options = parse_runner_options(argc, argv);
  if (!options.ok()) return refuse(options.status().message());
  if (!options->help.empty()) {
    std::fputs(options->help.c_str(), stdout);
    return kExitPass;
  }
  const auto request = [&] {
    const Phase phase(kPhaseLoadConfig);
    return resolve(*options, current_device(), process_environment());
  }();
  if (!request.ok()) return refuse(request.status().message());
  const auto cases = pending_cases(*request, *options);
  if (!cases.ok()) return refuse(cases.status().message());
  const auto declined = declined_pairs(*request, *cases);
  if (!declined.ok()) return refuse(declined.status().message());
  const auto run = describe_run(request->choice.device);
  if (!run.ok()) return refuse(run.status().message());
  const auto ptxas = load_ptxas_report();
  if (!ptxas.ok()) return refuse(ptxas.status().message());
  auto directory = options->out.empty() ? ResultDirectory::open_new(kResultRoot)
                                        : ResultDirectory::open(options->out);
  if (!directory.ok()) return refuse(directory.status().message());

  print_opening(*request, *run, *declined);
  const auto results = run_cases(*request, *cases, *declined, {print_line, Progress()});
  if (!results.ok()) return refuse(results.status().message());
  if (Status status = write_results(*directory, *run, *request, *results, *ptxas); !status.ok()) {
    return refuse(status.message());
  }
  if (!request->performance) {
    print_line("performance skipped: " + request->no_performance_reason);
  }
  const auto max_mhz = run->device ? run->device->nvml.sm_clock_max_mhz : std::nullopt;
  for (const std::string& note : clock_notes(results->perf, max_mhz)) print_line("note: " + note);
  std::printf("\n%s\n", closing_table(results->correctness, results->perf).c_str());
  print_line("results: " + directory->path());
  print_line(verdict_line(results->correctness));
  return results->all_pass ? kExitPass : kExitFail;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_tool(argc, argv);
  } catch (const std::bad_alloc&) {
    return refuse("out of host memory, expected smaller shapes");
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}
