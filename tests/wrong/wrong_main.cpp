// Puts every wrong kernel through the gates, each in a process of its own, since a wrong kernel may
// crash or hang.
//   wrong_kernels [--only NAME] [--kernels] [--model] [--out FOLDER [--races FOLDER]]
//                 [--catalogue FOLDER --work FOLDER]
// --out writes the kill matrix, for which each goes through all trials; else the first that it
// fails is enough. --races adds what the ThreadSanitizer build left of its own wrong kernels:
// build/tsan/tests/wrong/faults. Exit code 0 if every fault was killed and every unedited kernel
// passed; 1 if not; 2 for bad usage.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "decode/decode.hpp"
#include "dispatch/variant_impl.hpp"
#include "sm90/sm90.hpp"
#include "tests/wrong/faults.hpp"
#include "tests/wrong/kill_matrix.hpp"
#include "tests/wrong/model_faults.hpp"
#include "tests/wrong/quantise_trials.hpp"
#include "tests/wrong/wrong_kernels.hpp"

namespace fp8_sdpa::wrong {
namespace {

namespace fs = std::filesystem;

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;
constexpr unsigned kSecondsPerFault = 60;  // of a core, ten times what a right kernel takes

struct Options {
  bool kernels = false;
  bool model = false;
  std::string only;
  fs::path out;
  fs::path races;
  fs::path catalogue = WRONG_CATALOGUE;
  fs::path work = WRONG_WORK_DIR;
};

struct Task {
  Row row;
  std::function<Outcome()> judge;
  bool must_pass = false;  ///< the control: nothing is wrong with it
};

using Supports = Status (*)(const Problem&, const Device&);

template <std::size_t kRow>
Status tile_shape_supports(const Problem& problem, const Device& device) {
  return sm90::supports(sm90::kTileShapes[kRow], problem, device);
}
template <std::size_t... kRows>
Supports supports_of_row(std::size_t row, std::index_sequence<kRows...>) {
  static constexpr Supports kSupports[] = {tile_shape_supports<kRows>...};
  return kSupports[row];
}

/// What tests/wrong/decode_root.cuh has.
Status decode_supports(const Problem& problem, const Device& device) {
  if (problem.head_dim != 64 || problem.q.dtype != Dtype::kE4M3) {
    return unsupported("decode serves head_dim 64 and e4m3 here");
  }
  return decode::supports(problem, device);
}

/// The variant of which a kernel is one, as if it were the only one: it serves what that serves.
Variant variant_of(std::string_view kernel, detail::VariantImpl* impl) {
  std::string_view name = kernel;
  Supports supports = nullptr;
  constexpr std::size_t kRows = std::size(sm90::kTileShapes);
  for (std::size_t row = 0; row < kRows; ++row) {
    if (sm90::kTileShapes[row].kernel != kernel) continue;
    name = sm90::kTileShapes[row].variant;
    supports = supports_of_row(row, std::make_index_sequence<kRows>());
  }
  Variant variant = **find_variant(name);
  if (variant.family == Family::kDecode) supports = decode_supports;
  *impl = *variant.impl;
  impl->has_kernel_of_exact_sums = nullptr;
  if (supports != nullptr) impl->supports = supports;
  variant.impl = impl;
  return variant;
}

#if defined(FP8_SDPA_TSAN)
std::atomic<int> g_race_reports = 0;
const std::vector<Trial>& trials() { return race_trials(); }
const std::vector<Trial>& trials(const Variant&) { return race_trials(); }
#else
const std::vector<Trial>& trials() { return kernel_trials(); }
/// Who serves caches is tried first on what most of its faults show in.
const std::vector<Trial>& trials(const Variant& variant) {
  static const std::vector<Trial> few_rows_first = [] {
    std::vector<Trial> all = kernel_trials();
    std::ranges::stable_partition(
        all, [](const Trial& trial) { return trial.name.starts_with("few_rows"); });
    return all;
  }();
  return variant.impl->serves_caches ? few_rows_first : kernel_trials();
}
#endif

/// ThreadSanitizer is asked about what the gates let pass.
Outcome with_races(Outcome outcome) {
#if defined(FP8_SDPA_TSAN)
  if (!outcome.killed() && g_race_reports > 0) {
    outcome.findings.push_back({"adversarial schedules", "ThreadSanitizer", INFINITY, 0.0, false,
                                "data races: its reports are above"});
  }
#endif
  return outcome;
}

Outcome try_kernel(std::string_view kernel, Extent extent) {
  if (is_quantiser(kernel)) {
    Outcome outcome;
    try_quantiser(kernel, reference::quantise_now, extent, outcome);
    return with_races(std::move(outcome));
  }
  detail::VariantImpl impl{};
  const Variant variant = variant_of(kernel, &impl);
  return with_races(try_variants({variant}, trials(variant), extent));
}
/// A mistake, as each kernel that might show it.
Outcome try_wrong_kernels(const std::vector<WrongKernel>& kernels, Extent extent) {
  std::vector<detail::VariantImpl> impls(kernels.size());
  std::vector<Variant> variants;
  Outcome outcome;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].quantise != nullptr) {
      try_quantiser(kernels[i].kernel, kernels[i].quantise, extent, outcome);
      continue;
    }
    variants.push_back(variant_of(kernels[i].kernel, &impls[i]));
    impls[i].host = {.launch = kernels[i].launch};
  }
  if (!variants.empty()) outcome = try_variants(variants, trials(variants.front()), extent);
  return with_races(std::move(outcome));
}

Row row_of(const Fault& fault) {
  if (fault.line == 0) {
    return {fault.name, fault.what, "kernel", fault.file.string(), fault.kernel, {}};
  }
  return {fault.name, fault.what,
          "kernel",   "kernels/" + fault.file.string() + ":" + std::to_string(fault.line),
          "",         {}};
}

std::vector<Task> kernel_tasks(const fs::path& folder, Extent extent) {
  const Catalogue catalogue = read_catalogue(folder, WRONG_KERNELS_DIR);
  std::map<std::string, const Fault*> faults;
  for (const Fault& fault : catalogue.faults) faults[fault.name] = &fault;
  std::map<std::string, Task> controls;
  std::vector<std::vector<WrongKernel>> mistakes;
  std::vector<Task> tasks;
  for (const WrongKernel& kernel : wrong_kernels()) {
    const std::string tag(kernel.kernel);
    if (mistakes.empty() || mistakes.back().front().name != kernel.name) mistakes.emplace_back();
    mistakes.back().push_back(kernel);
    controls[tag] = {{"control_" + tag, "nothing", "control", "", tag, {}},
                     [kernel] { return try_kernel(kernel.kernel, Extent::kAllTrials); },
                     /*must_pass=*/true};
  }
  for (const std::vector<WrongKernel>& mistake : mistakes) {
    tasks.push_back({row_of(*faults.at(std::string(mistake.front().name))),
                     [mistake, extent] { return try_wrong_kernels(mistake, extent); }});
  }
  for (auto& [name, task] : controls) tasks.push_back(std::move(task));
  return tasks;
}

std::vector<Task> model_tasks() {
  std::vector<Task> tasks;
  for (const ModelFault& fault : model_faults()) {
    tasks.push_back({{fault.name, fault.what, "model", "model", fault.fp8_p ? "e4m3" : "half", {}},
                     [fault] { return try_function(fault.attend, fault.fp8_p, model_trials()); }});
  }
  tasks.push_back({{"control_model", "nothing", "control", "", "half", {}},
                   [] { return try_function(attend_rightly, false, model_trials()); },
                   /*must_pass=*/true});
  return tasks;
}

/// Starts the task in a child that writes its row to `file`.
pid_t start(const Task& task, const fs::path& file) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  const rlimit limit{kSecondsPerFault, kSecondsPerFault + 5};
  setrlimit(RLIMIT_CPU, &limit);
  alarm(5 * kSecondsPerFault);  // for one that waits
  Row row = task.row;
  row.outcome = task.judge();
  std::ofstream(file) << encode_row(row);
  _exit(0);
}

/// What the child left behind; one that died is killed by that.
Row finish(const Task& task, const fs::path& file, int status) {
  Row row = task.row;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    row.outcome = decode_row(text.str()).outcome;
  } else {
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const std::string how = signal == SIGALRM || signal == SIGXCPU ? "it hung"
                            : signal != 0 ? "signal " + std::to_string(signal)
                                          : "exit status " + std::to_string(WEXITSTATUS(status)) +
                                                " (a sanitizer's report is above)";
    row.outcome.findings.push_back({"process", "executor", 1.0, 0.0, false, how});
    std::ofstream(file) << encode_row(row);
  }
  return row;
}

std::vector<Row> run_all(const std::vector<Task>& tasks, const fs::path& work) {
  fs::create_directories(work);
  const std::size_t jobs = std::max(1U, std::thread::hardware_concurrency());
  std::vector<Row> rows(tasks.size());
  std::map<pid_t, std::size_t> running;
  std::size_t next = 0;
  const auto file_of = [&](std::size_t i) { return work / (tasks[i].row.name + ".json"); };
  while (next < tasks.size() || !running.empty()) {
    while (next < tasks.size() && running.size() < jobs) {
      fs::remove(file_of(next));
      running[start(tasks[next], file_of(next))] = next;
      ++next;
    }
    int status = 0;
    const auto done = running.find(waitpid(-1, &status, 0));
    if (done == running.end()) continue;
    rows[done->second] = finish(tasks[done->second], file_of(done->second), status);
    running.erase(done);
  }
  return rows;
}

/// Prints what went wrong with the experiment itself: survivors, and controls that failed.
bool report(const std::vector<Task>& tasks, const std::vector<Row>& rows) {
  std::size_t faults = 0;
  std::size_t killed = 0;
  bool good = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Finding* strongest = rows[i].outcome.strongest();
    if (tasks[i].must_pass) {
      if (strongest == nullptr && !rows[i].outcome.findings.empty()) continue;
      std::printf("FALSE ALARM %s: %s in %s: %s\n", rows[i].name.c_str(),
                  strongest != nullptr ? strongest->gate.c_str() : "nothing ran",
                  strongest != nullptr ? strongest->trial.c_str() : "",
                  strongest != nullptr ? strongest->detail.c_str() : "");
      good = false;
      continue;
    }
    ++faults;
    killed += strongest != nullptr ? 1 : 0;
    if (strongest == nullptr) {
      std::printf("SURVIVED %s: %s (%s)\n", rows[i].name.c_str(), rows[i].what.c_str(),
                  rows[i].place.c_str());
    }
  }
  std::printf("%zu of %zu wrong kernels rejected\n", killed, faults);
  return good && killed == faults && faults > 0;
}

/// What became of the erased statements in the ThreadSanitizer build; what was not tried lives.
std::vector<Row> race_rows(const fs::path& folder) {
  std::vector<Row> rows;
  for (const Fault& fault : read_catalogue(WRONG_CATALOGUE, WRONG_KERNELS_DIR).faults) {
    if (fault.judge != Judge::kRace || (!rows.empty() && rows.back().name == fault.name)) continue;
    rows.push_back(row_of(fault));
    std::ifstream file(folder / (fault.name + ".json"));
    if (!file) continue;
    std::ostringstream text;
    text << file.rdbuf();
    rows.back().outcome = decode_row(text.str()).outcome;
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  return rows;
}

bool read_options(const std::vector<std::string>& arguments, Options* options) {
  const std::map<std::string, fs::path*> folders = {{"--out", &options->out},
                                                    {"--races", &options->races},
                                                    {"--catalogue", &options->catalogue},
                                                    {"--work", &options->work}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    const auto folder = folders.find(arguments[i]);
    if (arguments[i] == "--kernels") {
      options->kernels = true;
    } else if (arguments[i] == "--model") {
      options->model = true;
    } else if (arguments[i] == "--only" && has_value) {
      options->only = arguments[++i];
    } else if (folder != folders.end() && has_value) {
      *folder->second = arguments[++i];
    } else {
      return false;
    }
  }
  return true;
}

int run(const std::vector<std::string>& arguments) {
  Options options;
  if (!read_options(arguments, &options)) {
    std::fprintf(stderr,
                 "usage: wrong_kernels [--only NAME] [--kernels] [--model] [--out FOLDER "
                 "[--races FOLDER]] [--catalogue FOLDER --work FOLDER]\n");
    return kBadUsage;
  }
  std::vector<Task> tasks;
  if (options.kernels || !options.model) {
    make_budgets(trials());  // once, before the children
    tasks = kernel_tasks(options.catalogue,
                         options.out.empty() ? Extent::kFirstFailure : Extent::kAllTrials);
  }
  if (options.model || !options.kernels) {
    make_budgets(model_trials());
    for (Task& task : model_tasks()) tasks.push_back(std::move(task));
  }
  if (!options.only.empty()) {
    std::erase_if(tasks, [&](const Task& task) { return task.row.name != options.only; });
  }
  const std::vector<Row> rows = run_all(tasks, options.work);
  bool good = report(tasks, rows);
  if (!options.out.empty()) {
    std::vector<Row> faults;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!tasks[i].must_pass) faults.push_back(rows[i]);
    }
    if (!options.races.empty()) {
      for (Row& row : race_rows(options.races)) faults.push_back(std::move(row));
    }
    good = write_matrix(faults, options.out) && good;
  }
  return good ? 0 : kFailed;
}

}  // namespace
}  // namespace fp8_sdpa::wrong

#if defined(FP8_SDPA_TSAN)
// A report does not end the process, and its status is that of the gates.
extern "C" const char* __tsan_default_options() { return "exitcode=0"; }
extern "C" void __tsan_on_report(void* /*report*/) { ++fp8_sdpa::wrong::g_race_reports; }
#endif

int main(int argc, char** argv) { return fp8_sdpa::wrong::run({argv + 1, argv + argc}); }
