// Times the variants that passed, side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/measure/perf_record.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::bench {

/// Whether a Status is the kernel's fault, not the machine's or the user's.
bool is_kernel_error(const Status& status);

/// A variant, and the output bits that its gates judged: all of O's, or, of a peer whose output is
/// narrower than O's memory, the first ones, which are its own.
struct TimedVariant {
  const Variant* variant;
  const std::vector<std::uint16_t>* judged;
};

/// The methods that time_variants() times by; fp8_sdpa_bench has all of kMethods.
inline constexpr Method kTimedMethods[] = {Method::kEventsWarm, Method::kEventsCold,
                                           Method::kGraphWarm};

/// How long to time.
struct TimingPlan {
  int warmup_iters = 0;
  int timed_iters = 0;
  int max_timed_iters = 0;  ///< at most, where the times are not quiet by then (measurement.hpp)
  /// Samples of kGraphWarm, each of many launches; 0: as many as of the others.
  int graph_iters = 0;
  std::span<const Method> methods = kTimedMethods;
  Dtype output = Dtype::kHalf;     ///< of O
  std::optional<LseSum> lse = {};  ///< the problem asks for one, of that sum
  /// Where it is there: called after each repetition of a method, so that others can be
  /// interleaved. One that begins at sample 0 where samples were taken before begins anew: a
  /// variant has failed.
  std::function<void(Method, const Repetition&)> after_repetition = {};
};

/// What came of it: a record for each (variant, method), and the variants whose kernels ended in
/// an error, whose output was not, bit by bit, what the gates had judged, or whose time cannot be.
struct TimingResults {
  std::vector<PerfRecord> records;
  std::vector<std::pair<const Variant*, Status>> failed;
};

/// Takes out of the results every variant with a record above the device's roofline (roofline.hpp),
/// and counts it among those that failed.
void reject_above_roofline(const std::vector<TimedVariant>& variants, const Device& device,
                           TimingResults& results);

/// A line for each thing that the clocks say of a run's samples: how many are marked, and whether
/// the run as a whole was slow (repetitions.hpp), or that no clock is known. None without samples.
/// `max_mhz`: the device's highest SM clock.
std::vector<std::string> clock_notes(const std::vector<PerfRecord>& records,
                                     const std::optional<int>& max_mhz);

/// Times variants on one case by the plan's methods: on the same tensors, their samples interleaved
/// in a random order (measurement.hpp; seeded by the case). Where there are several, each sample is
/// preceded by an untimed launch of the same variant, so that its code is as warm as on its own. O
/// must be what the gates have judged, before the timing and after it. Clocks are read where NVML
/// is. A Status means that the run cannot go on.
Result<TimingResults> time_variants(std::vector<TimedVariant> variants,
                                    const reference::CaseData& data, const Device& device,
                                    const TimingPlan& plan);

}  // namespace fp8_sdpa::bench
