// Our times against a peer's: a table and one verdict.
#pragma once

#include <string>
#include <vector>

namespace fp8_sdpa::bench {

/// A shape's two times, in microseconds, of one run on one device.
struct PeerTimes {
  std::string shape;
  double peer_us = 0;
  double ours_us = 0;
};

/// A word, and what to do now.
struct PeerVerdict {
  std::string word;
  std::string next_step;
};

/// The verdict on peer time / our time: `>= 2x`, `faster` (> 1.05), `parity` (0.95 to 1.05),
/// `slower`, `much slower` (< 0.3); `not measured` for what is no positive number.
PeerVerdict peer_verdict(double ratio);

/// A Markdown table with a row per shape, the average, best and worst ratio, and the verdict on the
/// average. A ratio of times that are not positive numbers makes all of it `not measured`.
std::string peer_table(const std::string& peer, const std::vector<PeerTimes>& rows);

}  // namespace fp8_sdpa::bench
