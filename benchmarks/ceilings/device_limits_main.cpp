// fp8_sdpa_ceilings: measures what the chip can do at most; writes ceilings.json. Exit code 0:
// written, or no GPU; 2: bad usage, no GPU where one is required, a device error.
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/ceilings/device_limits.hpp"
#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/files/result_directory.hpp"
#include "benchmarks/command/tool.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

int run(const CommandLine& line, std::string folder, int samples) {
  const auto choice = choose_device("auto", current_device(), process_environment());
  if (!choice.ok()) return refuse(line, choice.status().message());
  const Device& device = choice->device;
  if (device.backend != Backend::kDevice) {
    std::fprintf(stderr, "ceilings are left out: they need a GPU (%s)\n",
                 choice->no_gpu_reason.c_str());
    return kExitPass;
  }
  const auto info = describe_run(device);
  if (!info.ok()) return refuse(line, info.status().message());
  if (folder.empty()) folder = "results/" + folder_name(std::time(nullptr)) + "-ceilings";
  auto directory = ResultDirectory::open(folder);
  if (!directory.ok()) return refuse(line, directory.status().message());
  const auto ceilings = measure_ceilings(device, samples);
  if (!ceilings.ok()) return refuse(line, ceilings.status().message());
  const auto document = ceilings_document(*info, *ceilings, device.sm_count);
  if (Status s = directory->write(kCeilingsFile, document); !s.ok()) {
    return refuse(line, s.message());
  }
  std::printf("%s\nwritten: %s/%s\n", ceilings_table(*ceilings, device.sm_count).c_str(),
              folder.c_str(), kCeilingsFile);
  return kExitPass;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMaxSamples = 10'000;
  CommandLine line(
      "Measures what this GPU can do at most: matrix multiplies, copies, exponentials, FMA, "
      "launches.",
      "fp8_sdpa_ceilings");
  std::string folder;
  int samples = 30;
  line.add("--out", folder, "Default: results/<YYYYMMDD-HHMMSS>-ceilings");
  line.add("--samples", samples, "Timed launches of each; default: 30").between(1, kMaxSamples);
  if (const auto code = parse_or_exit(line, argc, argv)) return *code;
  return run_guarded(line, [&] { return run(line, folder, samples); });
}
