// Any bytes as a result file: times that can be compared, or one line that says why not.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "benchmarks/files/perf_file.hpp"
#include "tests/fuzz/target.hpp"

namespace {

/// A file of this process, in memory where the system has such a place.
const std::string& path() {
  static const std::string name = [] {
    const std::string folder = access("/dev/shm", W_OK) == 0
                                   ? "/dev/shm"
                                   : std::filesystem::temp_directory_path().string();
    return folder + "/fp8_sdpa_fuzz_" + std::to_string(getpid()) + ".json";
  }();
  static const int registered = std::atexit([] { std::remove(path().c_str()); });
  static_cast<void>(registered);
  return name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fp8_sdpa::fuzz::expect;
  std::FILE* file = std::fopen(path().c_str(), "wb");
  if (file == nullptr) return 0;
  expect(std::fwrite(data, 1, size, file) == size);
  std::fclose(file);
  const auto perf = fp8_sdpa::bench::read_perf_file(path());
  if (!perf.ok()) {
    expect(!perf.status().message().empty());
    expect(perf.status().message().find('\n') == std::string::npos);
    return 0;
  }
  for (const auto& series : perf->series) {
    expect(!series.variant.empty() && !series.shape.empty());
    expect(perf->find(series.variant, series.shape, series.method) != nullptr);
  }
  return 0;
}
