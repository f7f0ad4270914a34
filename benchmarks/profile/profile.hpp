// Runs the runner's timed launches under Nsight Compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/profile/ncu_verdict.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

struct ProfileRequest {
  std::string shape;
  std::uint64_t seed = 0;
  int iters = 1;  ///< launches to profile
  std::string variant;
  std::string config;
  std::string folder;  ///< where the files go; it is there
  std::string ncu;     ///< path of the program
  std::string runner;  ///< path of fp8_sdpa_run
};

/// The metrics of ncu_metrics() that `listing`, what `ncu --query-metrics` prints, knows by their
/// names before the first dot. All of them where it lists none.
std::vector<std::string> known_metrics(const std::string& listing);

/// ncu's command line: the counters of the first `iters` launches of the NVTX range "timing", with
/// clocks and caches as they are.
std::vector<std::string> ncu_command(const ProfileRequest& request,
                                     const std::vector<std::string>& metrics);

/// Profiles and judges; leaves profile.ncu-rep, profile.csv, profile.log, verdict.txt and
/// verdict.json in the folder (the log also where something went wrong). kUnsupported, in one line
/// that says what is left out, where ncu may not read the GPU's counters; kInvalidArgument where
/// the run or the profile failed.
Result<ProfileVerdict> profile(const ProfileRequest& request,
                               const std::string& schema_folder = default_schema_folder());

}  // namespace fp8_sdpa::bench
