// What this chip can do at most, measured: rates that a kernel's own number is a share of.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa::bench {

/// What a device limit's value counts.
enum class LimitUnit : std::uint8_t {
  kFlopPerSecond,       ///< floating-point operations: an FMA is two
  kBytesPerSecond,      ///< bytes read and bytes written
  kOperationPerSecond,  ///< results of one instruction, one for each lane
  kMicroseconds,        ///< a time: less is better
};
constexpr const char* name_of(LimitUnit unit) {
  switch (unit) {
    case LimitUnit::kFlopPerSecond: return "FLOP/s";
    case LimitUnit::kBytesPerSecond: return "B/s";
    case LimitUnit::kOperationPerSecond: return "op/s";
    case LimitUnit::kMicroseconds: return "us";
  }
  return "unknown";
}

/// One measured limit.
struct MeasuredLimit {
  std::string name;  ///< letters, digits, underscores
  std::string what;  ///< one line for people: what was run
  LimitUnit unit = LimitUnit::kOperationPerSecond;
  double operations = 0;                ///< of one launch, in the unit's numerator; 1 for a time
  std::vector<double> samples_us = {};  ///< microseconds of one launch
  std::optional<double> cycles =
      {};  ///< multiprocessor cycles of one launch, where they were counted

  /// operations per second at the median time, or the median time itself.
  double value() const;
};

/// A limit that could not be measured here, and why.
struct LeftOut {
  std::string name;
  std::string reason;
};

struct MeasuredLimits {
  std::vector<MeasuredLimit> measured;
  std::vector<LeftOut> left_out;
};

/// Puts one launch of what is measured on a stream.
using StreamWork = std::function<Status(CUstream_st*)>;

/// `samples` times of `work` between two CUDA events, in microseconds, after three launches.
Result<std::vector<double>> time_work(const StreamWork& work, int samples);

/// Bytes read by a kernel that does nothing else.
Result<MeasuredLimit> measure_read(const Device& device, int samples);

/// Measures every device limit on a CUDA device. What cannot be measured is left out with a reason;
/// a Status means that the device itself failed, or is none.
Result<MeasuredLimits> measure_limits(const Device& device, int samples);

/// The matrix-multiply device limits through cuBLASLt, which is loaded when this is called.
void measure_matrix_multiplies(int samples, MeasuredLimits& ceilings);

/// ceilings.json; `sm_count` makes rates per clock and multiprocessor of those with cycles.
nlohmann::json limits_document(const RunInfo& run, const MeasuredLimits& ceilings, int sm_count);

/// A table for people.
std::string limits_table(const MeasuredLimits& ceilings, int sm_count);

}  // namespace fp8_sdpa::bench
