// What a report says: the verdict, tables and figures of a ReportData, as one Document.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "benchmarks/files/results.hpp"
#include "benchmarks/report/data.hpp"
#include "benchmarks/report/document.hpp"

namespace fp8_sdpa::bench {

/// What kernels are compared by: single launches, as users call kernels.
inline constexpr Method kJudged = Method::kEventsWarm;

/// "1 × 8 × 512 × 64", with what is not the same for queries and keys, and the mask.
std::string size_text(const reference::Shape& shape);

/// How many of the cases that the gates judged passed. Peers are not counted: their failures are
/// theirs.
struct GateCount {
  int passed = 0;
  int judged = 0;
};
GateCount gate_count(const ReportData& data);

/// The whole report. `figures` were made from the same data; `left_out` names, a line each, what is
/// missing beside what `data` says itself.
Document report_page(const ReportData& data, const std::vector<Figure>& figures,
                     const std::vector<std::string>& left_out, std::time_t when);

/// The sections behind the times: what kernels ask of a chip, profiles, the kill matrix, limits of
/// the chip, the cost model, and the environment of every run.
void append_resources(const ReportData& data, Document& page);
void append_profiles(const ReportData& data, Document& page);
void append_kill_matrix(const ReportData& data, Document& page);
void append_limits(const ReportData& data, Document& page);
void append_scaling(const ReportData& data, Document& page);
void append_environment(const ReportData& data, Document& page);

}  // namespace fp8_sdpa::bench
