#include "benchmarks/sweep/allocation.hpp"

#include <sched.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "reference/formats/text.hpp"

#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime_api.h>

#include "gpu/cuda_check.hpp"
#endif

namespace fp8_sdpa::bench {
namespace {

Status refused(const std::string& variable, const char* value, const std::string& expected) {
  return invalid_argument(variable + ": got " +
                          (value == nullptr ? "nothing" : reference::one_line(value)) +
                          ", expected " + expected);
}

/// An argument of CMake's language, whatever is in it.
std::string bracket(const std::string& text) { return "[==[" + text + "]==]"; }

}  // namespace

nlohmann::json resource_spec(const std::vector<int>& gpus) {
  nlohmann::json list = nlohmann::json::array();
  for (const int gpu : gpus) list.push_back({{"id", std::to_string(gpu)}, {"slots", 1}});
  return {{"version", {{"major", 1}, {"minor", 0}}},
          {"local", nlohmann::json::array({{{"gpus", std::move(list)}}})}};
}

Result<std::optional<int>> allocated_gpu(const Environment& environment) {
  const std::string count_name = "CTEST_RESOURCE_GROUP_COUNT";
  const char* count = environment(count_name.c_str());
  if (count == nullptr) return std::optional<int>();
  if (std::string(count) != "1") return refused(count_name, count, "1");
  const std::string kind_name = "CTEST_RESOURCE_GROUP_0";
  const char* kind = environment(kind_name.c_str());
  if (kind == nullptr || std::string(kind) != "gpus") return refused(kind_name, kind, "gpus");
  const std::string gpu_name = "CTEST_RESOURCE_GROUP_0_GPUS";
  const char* gpu = environment(gpu_name.c_str());
  static const std::regex kOne("id:([0-9]{1,4}),slots:1");
  std::cmatch match;
  if (gpu == nullptr || !std::regex_match(gpu, match, kOne)) {
    return refused(gpu_name, gpu, "id:<ordinal>,slots:1");
  }
  return std::optional<int>(std::stoi(match[1]));
}

std::string part_tests(const std::vector<std::string>& command, int parts,
                       const std::string& folder) {
  std::string out;
  for (int part = 0; part < parts; ++part) {
    const std::string number = std::to_string(part);
    out += "add_test(sweep/part_" + number;
    for (const std::string& word : command) out += " " + bracket(word);
    out += " --part " + number + " --parts " + std::to_string(parts) + " --out " +
           bracket(folder + "/part_" + number) + ")\n";
    // The resources alone decide how many run at once; the first parts have the most work.
    out += "set_tests_properties(sweep/part_" + number +
           " PROPERTIES RESOURCE_GROUPS gpus:1 COST " + std::to_string(parts - part) + ")\n";
  }
  return out;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int part, int parts) {
  const auto count = static_cast<std::int64_t>(cores.size());
  const std::int64_t first = count * part / parts;
  const std::int64_t last = std::max(first + 1, count * (part + 1) / parts);
  return {cores.begin() + first, cores.begin() + last};
}

Status use_share_of_cores(int gpu, int gpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return {StatusCode::kDeviceError, "the cores that this process may use are not to be had"};
  }
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  CPU_ZERO(&set);
  for (const int core : share_of_cores(cores, gpu, gpus)) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    return {StatusCode::kDeviceError, "this process cannot be kept on a share of the cores"};
  }
  return {};
}

#if FP8_SDPA_HAS_DEVICE

Result<std::vector<int>> visible_gpus() {
  int count = 0;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count));
  std::vector<int> gpus(static_cast<std::size_t>(count));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

Status use_gpu(int gpu) {
  int count = 0;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count));
  if (gpu < 0 || gpu >= count) {
    return invalid_argument("GPU " + std::to_string(gpu) + ": not there, expected one of the " +
                            std::to_string(count) + " that CUDA sees, from 0");
  }
  return FP8_SDPA_CUDA_STATUS(cudaSetDevice(gpu));
}

#else

Result<std::vector<int>> visible_gpus() { return unsupported("this build has no device code"); }
Status use_gpu(int) { return unsupported("this build has no device code"); }

#endif

}  // namespace fp8_sdpa::bench
