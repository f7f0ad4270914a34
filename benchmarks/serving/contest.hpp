// Decode steps of ours and of FlashAttention-3, judged and timed in turns, beside the rate at which
// the device reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "benchmarks/serving/cases.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

namespace fp8_sdpa::bench {

/// A row of serving.json.
struct ServingRow {
  ServingCase shape;
  std::string variant;     ///< that plan() took
  double us = 0.0;         ///< of a launch in a graph, median
  double flash3_us = 0.0;  ///< likewise, of the faster of its two ways to split; 0: not there
  bool passed = true;      ///< ours; else nothing is timed
  std::string note = {};   ///< why one of them is left out
};

/// The largest relative L2 error of O, and absolute one of the LSE. Rounding to bf16 moves an
/// element of O by up to 2^-9 of it, rounding to half a weight by up to 2^-11. E4M3 moves a weight
/// by up to 2^-4, a piecewise-linear exponential by 2^-6 more, and O by as much where few count.
inline constexpr double kHalfWeightsError = 0x1p-9 + 0x1p-11;
inline constexpr double kFp8WeightsError = 0x1p-9 + 0x1p-4 + 0x1p-6;
inline double most_error(const Variant& variant) {
  return variant.fp8_p() ? kFp8WeightsError : kHalfWeightsError;
}

/// Judges, then times. A peer that declines, or whose output fails, is left out.
Result<ServingRow> serve(const ServingCase& serving_case, const std::vector<std::uint8_t>& codes,
                         std::uint64_t seed, const Device& device);

/// Operations per microsecond.
double speed(const ServingRow& row);
/// Bytes per microsecond of K and V.
double rate(const ServingRow& row);

/// floors.json's list; rows of goal_cases(), `read`: bytes per microsecond. Floors of
/// FlashAttention-3 only where it is there.
nlohmann::json serving_floors(const std::vector<ServingRow>& rows, double read);

/// serving.json: rows that passed. `read`: as there.
nlohmann::json serving_document(const RunInfo& run, const std::vector<ServingRow>& rows,
                                double read);

/// A table for people: its head, and a line for each row.
std::string table_head();
std::string table_line(const ServingRow& row, double read);

}  // namespace fp8_sdpa::bench
