// What the times of a contest come to: a table of ratios, their geometric mean and the least.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/peers/contest.hpp"

namespace fp8_sdpa::bench {

/// Single launches, the host's part left out: of ours it is little, because plan() did the rest.
inline constexpr Method kRatioMethod = Method::kQueuedWarm;

/// A row of the table, medians by kRatioMethod.
struct RatioRow {
  std::string shape;
  double ours_us = 0, peer_us = 0;
  std::string variant;  ///< our fastest
  std::string peer;     ///< the faster of the peer's modes
  std::string reason;   ///< why the row does not count; empty where it does

  double ratio() const { return peer_us / ours_us; }
};

/// A row for each shape that `peer` was timed on; the modes of a peer are the names that begin with
/// its own and end in "_no_split". A row of a peer that failed a gate does not count, nor one of a
/// shape that ours has no time of.
std::vector<RatioRow> ratio_rows(const std::vector<reference::Shape>& shapes,
                                 const ContestResults& results, const std::string& peer);

/// For each peer of the results a table of those shapes as Markdown, who writes an LSE, and below
/// it the geometric mean and the least of the rows that count.
std::string ratio_tables(const std::string& title, const std::vector<reference::Shape>& shapes,
                         const ContestResults& results);

}  // namespace fp8_sdpa::bench
