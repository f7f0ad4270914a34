// fp8_sdpa_serving: decode steps on caches in pages, judged, and timed beside FlashAttention-3's.
// Exit code 0: ours passed; 1: an output of ours failed, and no floors are written; 2: bad usage,
// no GPU, a device error.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/ceilings/device_limits.hpp"
#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/peers/flash3/flash3_peers.hpp"
#include "benchmarks/serving/cache.hpp"
#include "benchmarks/serving/contest.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

struct Arguments {
  int drawn = 0;
  std::uint64_t seed = 1;
  std::string folder;
};

/// floors.json, as the other areas': which commit, GPU and command, and the list.
nlohmann::json floors_document(const RunInfo& info, const Device& device,
                               const Arguments& arguments, const std::vector<ServingRow>& rows,
                               double read) {
  const auto flash3 = load_flash3(process_environment()(kFlash3Variable));
  return {{"commit", info.build.git_sha},
          {"gpu", device.name},
          {"command", "./sdpa serving --drawn " + std::to_string(arguments.drawn) + " --seed " +
                          std::to_string(arguments.seed) +
                          (flash3.ok() ? std::string("; ") + (*flash3)->source : "")},
          {"floors", serving_floors(rows, read)}};
}

Result<int> run(const Arguments& arguments) {
  constexpr int kReads = 15;
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  const auto device = the_gpu(process_environment());
  if (!device.ok()) return device.status();
  const auto info = describe_run(*device);
  if (!info.ok()) return info.status();
  auto directory = ResultDirectory::open_empty(folder_or_default(arguments.folder, "serving"));
  if (!directory.ok()) return directory.status();
  if (const auto flash3 = load_flash3(process_environment()(kFlash3Variable)); !flash3.ok()) {
    std::printf("note: FlashAttention-3 is left out: %s\n", flash3.status().message().c_str());
  }
  const auto read = measure_read(*device, kReads);
  if (!read.ok()) return read.status();
  const double bytes_per_us = read->value() * 1e-6;
  const std::vector<std::uint8_t> codes = draw_codes(arguments.seed);
  std::string text = "Read rate: " + std::to_string(static_cast<int>(bytes_per_us * 1e-3)) +
                     " GB/s.\n\n" + table_head();
  std::fputs(text.c_str(), stdout);
  std::vector<ServingCase> cases = goal_cases(arguments.seed);
  for (ServingCase& drawn : drawn_cases(arguments.drawn, arguments.seed)) {
    cases.push_back(std::move(drawn));
  }
  std::vector<ServingRow> rows;
  std::string notes;
  Status stopped;
  bool passed = true;
  for (const ServingCase& serving_case : cases) {
    auto row = serve(serving_case, codes, arguments.seed, *device);
    if (!row.ok()) {
      stopped = row.status();
      break;
    }
    const std::string line = table_line(*row, bytes_per_us);
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
    text += line;
    if (!row->note.empty()) notes += "\n" + row->note + ".\n";
    passed = passed && row->passed;
    rows.push_back(std::move(*row));
  }
  std::fputs(notes.c_str(), stdout);
  // What was measured is kept, whatever stopped the rest.
  if (Status s = replace_file(directory->path() + "/serving.md", text + notes); !s.ok()) return s;
  const nlohmann::json document = serving_document(*info, rows, bytes_per_us);
  if (Status s = directory->write(kServingFile, document); !s.ok()) return s;
  std::printf("results: %s\n", reference::one_line(directory->path()).c_str());
  if (!stopped.ok()) return stopped;
  if (!passed) return kExitFail;
  const nlohmann::json floors = floors_document(*info, *device, arguments, rows, bytes_per_us);
  if (Status s = directory->write("floors.json", floors); !s.ok()) return s;
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMostDrawn = 1000;
  CommandLine line(
      "Times decode steps on caches in pages, beside FlashAttention-3's on the same tensors, in "
      "turns; judges both.",
      "fp8_sdpa_serving");
  Arguments arguments;
  line.add("--drawn", arguments.drawn, "So many cases drawn at random behind the goal shapes")
      .between(0, kMostDrawn);
  line.add("--seed", arguments.seed, "Of codes, ragged lengths, pages and drawn cases; default: 1");
  line.add("--out", arguments.folder, "Default: results/<YYYYMMDD-HHMMSS>-serving");
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(arguments); });
}
