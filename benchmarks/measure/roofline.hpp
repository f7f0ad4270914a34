// What no kernel can be faster than. A measured time below it is an error of the measurement (or of
// the kernel: one that skips its work), never a record.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "benchmarks/measure/perf_record.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// Limits of one kind of device.
struct DeviceLimits {
  std::string_view name;         ///< a part of the name that CUDA gives it
  double flop_per_clock_per_sm;  ///< FP8 tensor cores, dense, a multiply and an add being two
  double dram_bytes_per_second;
  double l2_bytes;
  int max_sm_clock_mhz;  ///< the highest that the tensor cores can be clocked at
};

/// The limits of a device of that name, or nullptr where the table does not have it. The table and
/// its sources are in roofline.cpp.
const DeviceLimits* find_limits(std::string_view device_name);

/// (query, key) pairs that the mask leaves, over all batches and query heads. Exact, other than
/// flop_count(), which halves.
double attended_pairs(const reference::Shape& shape);

/// The shortest time of one launch, in microseconds.
struct Roofline {
  double flop_us = 0;   ///< 4 D FLOP for each attended pair, at the clock
  double bytes_us = 0;  ///< what must come from DRAM: Q, K and V once, less L2 where L2 is warm
  double clock_mhz = 0;
};

/// `clock_mhz`: the highest that was measured while the samples were taken, empty where none was,
/// which stands for the device's highest.
Roofline roofline(const DeviceLimits& limits, int sm_count, const reference::Shape& shape,
                  Method method, const std::optional<double>& clock_mhz);

/// Whether a series' median can be. kExecutorError with the variant, the shape, the time and the
/// bound where it is below its roofline. Fine where the device is not in the table: nothing is
/// known.
Status check_roofline(const PerfRecord& record, const Device& device);

/// "NAME is not in the table of limits: results are not judged by the roofline", or empty where it
/// is there.
std::string roofline_note(const Device& device);

}  // namespace fp8_sdpa::bench
