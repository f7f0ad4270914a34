// What a run prints: a line per case, a closing table, a verdict.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"

namespace fp8_sdpa::bench {

/// `[small   ] seed=0 variant=stage_c: max_err=0.0136, mean_err=0.0028, %bad=0.0% PASS`, and of
/// tensors of a file what they are judged by instead
std::string correctness_line(const CorrectnessRecord& record);

/// `[mission ] seed=0 variant=stage_c: p50=245.32us, p90=248.17us, std=1.23us`
std::string perf_line(const PerfRecord& record);

/// A table with a row per (variant, shape): its worst errors over the seeds, and its times by every
/// method that was measured.
std::string closing_table(const std::vector<CorrectnessRecord>& correctness,
                          const std::vector<PerfRecord>& perf);

/// The names that --variants and --shapes take, each with what it is.
std::string listing(const reference::Config& config, std::span<const Variant> table);

/// `ALL CORRECTNESS CHECKS PASSED (6 of 6)`, or how many failed.
std::string verdict_line(const std::vector<CorrectnessRecord>& records);

}  // namespace fp8_sdpa::bench
