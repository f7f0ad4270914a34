// What Nsight Compute's counters say of a kernel: a tree of verdicts.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Metrics that a profile asks for, as ncu names them. Not every chip has each.
const std::vector<std::string>& ncu_metrics();

/// Counters of one kernel.
struct KernelCounters {
  std::string kernel;
  int launches = 0;
  std::map<std::string, double> metrics;  ///< by ncu's name, averaged over the launches
};

/// Reads what `ncu --page raw --csv --print-units base` prints: a row of names, a row of units, a
/// row per launch. Of several kernels the one that took most time in all. `name` is for messages.
/// kInvalidArgument, in one line, where that is not what the text is.
Result<KernelCounters> parse_ncu_csv(const std::string& csv, const std::string& name);

struct ProfileVerdict {
  std::string verdict;  ///< tensor cores not engaged, spills, memory-bound, compute-bound,
                        ///< latency-bound or mixed
  std::string because;  ///< the counter that decided
  std::string next_step;
};

/// The tree, first match: tensor pipe < 10 %; local-memory instructions > 0; DRAM > 70 %; tensor
/// pipe > 50 %; both < 40 %; else mixed. kInvalidArgument where a counter that it needs is missing
/// or no number.
Result<ProfileVerdict> judge_profile(const KernelCounters& counters);

/// What verdict.json says of the kernel; profile() adds the run's device, commit and time.
nlohmann::json verdict_json(const KernelCounters& counters, const ProfileVerdict& verdict,
                            const std::string& shape, const std::string& variant);

/// verdict.txt.
std::string verdict_text(const KernelCounters& counters, const ProfileVerdict& verdict,
                         const std::string& shape, const std::string& variant);

}  // namespace fp8_sdpa::bench
