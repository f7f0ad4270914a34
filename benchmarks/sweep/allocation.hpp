// The GPUs of a host, spread over a sweep's parts by CTest's resource allocation (CMake's manual,
// ctest(1), "Resource Allocation").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/command/selection.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// The resource specification file: each of `gpus` with one slot.
nlohmann::json resource_spec(const std::vector<int>& gpus);

/// The CUDA device that CTest gave this process by CTEST_RESOURCE_GROUP_*: empty where it gave
/// none because nobody asked; kInvalidArgument, naming the variable, for what is no single GPU.
Result<std::optional<int>> allocated_gpu(const Environment& environment);

/// A CTestTestfile.cmake with a test for each part, each of which needs one GPU: `command` with
/// "--part <i> --parts <n> --out <folder>/part_<i>" behind it.
std::string part_tests(const std::vector<std::string>& command, int parts,
                       const std::string& folder);

/// The devices that CUDA sees, by ordinal.
Result<std::vector<int>> visible_gpus();

/// Which of `cores` part `part` of `parts` has: all of them are dealt, as evenly as it goes; where
/// there are fewer than parts, some have the same. @pre cores is not empty, 0 <= part < parts.
std::vector<int> share_of_cores(const std::vector<int>& cores, int part, int parts);

/// Keeps this process and its threads to come on its GPU's share of the cores that it may use, so
/// that sweeps side by side take nothing from each other, and one alone no more than it has then.
Status use_share_of_cores(int gpu, int gpus);

/// Makes a device the one that this process uses. kInvalidArgument where there is no such device.
Status use_gpu(int gpu);

}  // namespace fp8_sdpa::bench
