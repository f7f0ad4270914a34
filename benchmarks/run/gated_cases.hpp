// GREEN before FAST inside one process: a variant is judged the first time that somebody wants to
// time it, and only what passed is handed out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/measure/workload.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/config/config.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::bench {

/// A launch that passed its gates: keeps its tensors alive.
struct GatedLaunch {
  std::shared_ptr<const Workload> workload;
  Plan plan;
  std::vector<std::uint16_t> judged;  ///< O's bits that the gates have seen

  /// Runs once and asks for those bits: before timing.
  Status check_fresh_run() const;
  /// Asks what the last launch left for those bits: after timing.
  Status check_output() const;
};

/// Gate verdicts of this process on one device, with the first seed of the configuration.
class GatedCases {
 public:
  GatedCases(reference::Config config, Device device)
      : config_(std::move(config)), device_(std::move(device)) {}

  /// A launch of a variant that has passed all gates on this shape. Otherwise kExecutorError or
  /// kDeviceError with the failed gate, or why it could not be judged. The verdict is kept: a
  /// variant that failed once stays refused.
  Result<GatedLaunch> launch(const Variant& variant, const reference::Shape& shape);

  /// Whether any verdict of this process was a failed gate or an error.
  bool any_failed() const { return any_failed_; }

 private:
  struct Verdict {
    Status status;
    std::vector<std::uint16_t> output;
  };

  Status load(const reference::Shape& shape, const Variant& variant);
  Verdict judge(const Variant& variant) const;

  reference::Config config_;
  Device device_;
  // The tensors of one shape, and of one variant's formats, at a time.
  std::shared_ptr<const reference::CaseData> data_;
  Dtype values_ = Dtype::kE4M3;  ///< V's
  std::shared_ptr<const Workload> workload_;
  std::map<std::pair<std::string, std::string>, Verdict> verdicts_;
  bool any_failed_ = false;
};

}  // namespace fp8_sdpa::bench
