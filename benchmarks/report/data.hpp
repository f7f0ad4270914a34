// What a report is made of: the files of result folders, each read by itself, so that a broken one
// takes nothing else with it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/files/perf_file.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"

namespace fp8_sdpa::bench {

/// Another library's kernel: "peer/<name>" in a result file.
bool is_peer(const std::string& variant);
/// "stage_c" of "stage_c_cp_async", "sm90" of "sm90_turns", "peer" of a peer.
std::string family_of(const std::string& variant);

/// One measured (variant, shape, method).
struct ReportCell {
  std::string variant;
  reference::Shape shape;  ///< its name, sizes and mask
  std::string method;      ///< as name_of(Method) has it
  SeriesTimes times;       ///< microseconds per launch
  double tflops = 0;       ///< at the median, 4 * B * H * S_q * S_kv * D FLOP, halved if causal
  std::optional<std::pair<double, double>> interval;  ///< 95 % of the median, from version 2 on
  std::int64_t marked_samples = 0;  ///< taken below the expected clock, from version 2 on
};

/// What the gates said of the seeds of one (variant, shape).
struct ReportVerdict {
  int judged = 0;
  int passed = 0;
  double max_abs_err = 0;    ///< the largest over the seeds, as all of these;
  double mean_abs_err = 0;   ///< infinite where one was not finite
  double rel_l2 = 0;         ///< against the unquantised inputs
  double kernel_rel_l2 = 0;  ///< against the dequantised inputs: the kernel's own
  std::string failure;       ///< the first seed's that failed

  bool pass() const { return judged > 0 && passed == judged; }
};

/// A folder that the runner wrote.
struct ReportRun {
  std::string folder;
  std::string timestamp;
  std::string device;             ///< its name; "host executor" where there was none
  nlohmann::json build_meta;      ///< null where it was left out
  std::vector<ReportCell> cells;  ///< ours passed their gates; a peer's may have failed
  std::map<std::pair<std::string, std::string>, ReportVerdict> verdicts;  ///< by variant and shape

  const ReportVerdict* verdict(const std::string& variant, const std::string& shape) const;
  const ReportCell* find(const std::string& variant, const std::string& shape,
                         const std::string& method) const;
  /// Whether the gates passed what a cell timed.
  bool is_green(const ReportCell& cell) const;
  /// Of the cells, in their order and without duplicates: what `member` picks.
  template <class Pick>
  std::vector<std::string> names(const Pick& pick) const;
};

/// The first block of a launch, by trace.json of fp8_sdpa_timeline.
struct ReportTimeline {
  struct Span {
    int warp;
    std::string phase;
    double start, cycles;  ///< of the block's multiprocessor; the first span of the block is at 0
  };
  std::string variant, shape, device;
  std::vector<Span> spans;
};

/// What a chip can do at most, as measured: ceilings.json.
struct ReportCeilings {
  struct Limit {
    std::string name;
    std::string what;  ///< was run
    std::string unit;  ///< "FLOP/s", "B/s", "op/s" or "us"
    double value;
  };
  std::string device;
  std::vector<Limit> limits;
};

/// Times over lengths and heads at constant work, and the model fitted to them: sweep.json.
struct ReportSweep {
  struct Place {
    std::string variant, shape;
    std::int64_t level;  ///< 2^level = B * H * S^2
    std::int64_t seq;
    double graph_us;
    double device_bytes;             ///< what the launch took of the device's memory
    std::optional<double> model_us;  ///< none where there is no fit
  };
  struct Fit {
    std::string variant;
    double launch_us, per_step_us, rms_departure;  ///< the last one is a share: 0.1 is 10 %
    std::int64_t places;
  };
  std::string device;
  std::vector<Place> places;
  std::vector<Fit> fits;
};

struct ReportData {
  std::vector<ReportRun> runs;
  std::vector<ReportCeilings> ceilings;
  std::vector<ReportSweep> sweeps;
  std::vector<nlohmann::json> profiles;  ///< verdict.json of fp8_sdpa_profile
  std::vector<ReportTimeline> timelines;
  nlohmann::json kill_matrix;         ///< null where there is none
  std::vector<std::string> refused;   ///< a line for each file or folder that cannot be used
  std::vector<std::string> left_out;  ///< a line for what was not asked for or not measured

  bool empty() const {
    return runs.empty() && ceilings.empty() && sweeps.empty() && profiles.empty() &&
           timelines.empty();
  }
  /// The device's fastest FP8 matrix multiply in TFLOP/s, 0 where none was measured.
  double ceiling_tflops(const std::string& device) const;
};

/// Reads every folder and the kill matrix. Files of every schema version up to this build's are
/// read: results stay in the repository when the version goes up.
ReportData read_report_data(const std::vector<std::string>& folders,
                            const std::string& kill_matrix);

template <class Pick>
std::vector<std::string> ReportRun::names(const Pick& pick) const {
  std::vector<std::string> out;
  for (const ReportCell& cell : cells) {
    const std::string name = pick(cell);
    bool known = name.empty();
    for (const std::string& other : out) known = known || other == name;
    if (!known) out.push_back(name);
  }
  return out;
}

}  // namespace fp8_sdpa::bench
