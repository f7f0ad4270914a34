// The runner's command line, and what it comes to: every choice made and checked before anything is
// run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "benchmarks/command/device_choice.hpp"
#include "benchmarks/command/paths.hpp"
#include "benchmarks/command/selection.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"
#include "reference/formats/quantise.hpp"

namespace fp8_sdpa::bench {

inline constexpr const char* kRunnerName = "fp8_sdpa_run";

/// The command line as it was given.
struct RunnerOptions {
  std::string shapes;  ///< comma-separated names or globs; empty: the suite
  std::string suite;   ///< empty: "default"
  std::string seeds;   ///< empty: the configuration's
  std::string variants;
  std::optional<int> iters;  ///< timed launches; 0: gates only
  std::string config = default_config_path();
  std::string qkv;  ///< a safetensors file
  std::string qkv_layout = "bhsd";
  std::string qkv_names = "q,k,v";  ///< of its tensors; these in any case
  double qkv_scale = 0;             ///< of the softmax; 0: 1 / sqrt(head_dim)
  std::string qkv_mask = "none";
  reference::QuantisingWay qkv_way;  ///< of originals
  bool qkv_costs = false;            ///< say per head what quantisation costs
  std::string out;                   ///< empty: a new folder under results/
  std::string backend = "auto";
  bool list = false;  ///< name variants and shapes, and run nothing
  std::string help;   ///< not empty: print this and run nothing
};

/// Reads a command line. kInvalidArgument, in one line, for bad usage.
Result<RunnerOptions> parse_runner_options(int argc, const char* const* argv);

/// What to run.
struct RunRequest {
  reference::Config config;
  std::vector<reference::Shape> shapes;  ///< empty where a file of tensors is judged
  std::vector<std::uint64_t> seeds;
  std::vector<const Variant*> variants;
  bool automatic = false;  ///< plan()'s own choice too, shape by shape
  DeviceChoice choice;
  bool performance = false;
  std::string no_performance_reason;  ///< why performance is false
  int timed_iters = 0;
  int max_timed_iters = 0;         ///< where the times are not quiet by then
  std::vector<std::string> notes;  ///< lines for people: what is left out, and why
};

/// Score elements of a shape: batch * heads * S_q * S_kv.
std::int64_t score_count(const reference::Shape& shape);

/// score_count() up to which the host executor runs a shape unasked.
inline constexpr std::int64_t kHostScoreLimit = 4'000'000;

/// Makes and checks every choice. `gpu` is what current_device() said.
Result<RunRequest> resolve(const RunnerOptions& options, const Result<Device>& gpu,
                           const Environment& environment);

/// The same for a tool that takes one shape and one variant: kInvalidArgument for more.
Result<RunRequest> resolve_one(const RunnerOptions& options, const Result<Device>& gpu,
                               const Environment& environment);

}  // namespace fp8_sdpa::bench
