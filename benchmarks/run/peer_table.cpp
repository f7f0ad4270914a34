#include "benchmarks/run/peer_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "benchmarks/command/text.hpp"

namespace fp8_sdpa::bench {
namespace {

double ratio_of(const PeerTimes& row) {
  const bool measured = std::isfinite(row.peer_us) && std::isfinite(row.ours_us) &&
                        row.peer_us > 0 && row.ours_us > 0;
  return measured ? row.peer_us / row.ours_us : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

PeerVerdict peer_verdict(double ratio) {
  constexpr double kTwice = 2;
  constexpr double kFaster = 1.05;
  constexpr double kParity = 0.95;
  constexpr double kMuchSlower = 0.3;
  if (!(ratio > 0) || !std::isfinite(ratio)) {
    return {"not measured", "measure both in one run on one GPU"};
  }
  if (ratio >= kTwice) return {">= 2x", "keep it: add it to the elite and to the run log"};
  if (ratio > kFaster) return {"faster", "profile what binds it on the way to 2x"};
  if (ratio >= kParity) return {"parity", "profile both and compare what binds them"};
  if (ratio >= kMuchSlower) return {"slower", "profile it and follow the verdict's next step"};
  return {"much slower", "check that tensor cores are engaged"};
}

std::string peer_table(const std::string& peer, const std::vector<PeerTimes>& rows) {
  std::string out = "| shape | " + peer + " us | ours us | ratio |\n|---|---|---|---|\n";
  double sum = 0;
  double best = -std::numeric_limits<double>::infinity();
  double worst = std::numeric_limits<double>::infinity();
  for (const PeerTimes& row : rows) {
    const double ratio = ratio_of(row);
    sum += ratio;
    best = std::max(best, ratio);
    worst = std::min(worst, ratio);
    out +=
        "| " + row.shape +
        (std::isnan(ratio) ? std::string(" | - | - | - |\n")
                           : format(" | %.2f | %.2f | %.2fx |\n", row.peer_us, row.ours_us, ratio));
  }
  const double average = sum / static_cast<double>(rows.size());
  const PeerVerdict verdict = peer_verdict(average);
  if (std::isfinite(average)) {
    out += format("\nRatio: average %.2fx, best %.2fx, worst %.2fx.\n", average, best, worst);
  }
  return out + "\n**Verdict: " + verdict.word + "**. Next: " + verdict.next_step + ".\n";
}

}  // namespace fp8_sdpa::bench
