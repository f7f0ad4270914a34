// fp8_sdpa_ceilings: measures what the chip can do at most; writes ceilings.json. Exit code 0:
// written; 2: bad usage, no GPU, a device error.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/ceilings/device_limits.hpp"
#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/tool.hpp"
#include "benchmarks/files/build_info.hpp"
#include "benchmarks/files/result_directory.hpp"

namespace {

using namespace fp8_sdpa;
using namespace fp8_sdpa::bench;

Result<int> run(const std::string& folder, int samples) {
  if (Status s = check_sources(process_environment()); !s.ok()) return s;
  const auto device = the_gpu(process_environment());
  if (!device.ok()) return device.status();
  const auto info = describe_run(*device);
  if (!info.ok()) return info.status();
  auto directory = ResultDirectory::open_empty(folder_or_default(folder, "ceilings"));
  if (!directory.ok()) return directory.status();
  const auto ceilings = measure_limits(*device, samples);
  if (!ceilings.ok()) return ceilings.status();
  const auto document = limits_document(*info, *ceilings, device->sm_count);
  if (Status s = directory->write(kCeilingsFile, document); !s.ok()) return s;
  std::printf("%s\nwritten: %s/%s\n", limits_table(*ceilings, device->sm_count).c_str(),
              reference::one_line(directory->path()).c_str(), kCeilingsFile);
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
  return run_guarded(line, [&] { return run(folder, samples); });
}
