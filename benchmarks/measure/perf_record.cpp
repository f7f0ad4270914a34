#include "benchmarks/measure/perf_record.hpp"

#include <utility>

namespace fp8_sdpa::bench {

double flop_count(const reference::Shape& shape) {
  constexpr double kFlopPerScoreAndDim = 4;  // a multiply and an add, in Q K^T and in P V
  const double dense = kFlopPerScoreAndDim * shape.batch * shape.heads_q *
                       static_cast<double>(shape.seq_q) * static_cast<double>(shape.seq_kv) *
                       shape.head_dim;
  return shape.mask == Mask::kCausal ? dense / 2 : dense;
}

double tflops(const reference::Shape& shape, double us) {
  constexpr double kFlopPerMicrosecond = 1e6;  // of a TFLOP/s
  return flop_count(shape) / us / kFlopPerMicrosecond;
}

std::optional<double> expected_clock(const std::vector<PerfRecord>& records) {
  std::vector<double> clocks;
  for (const PerfRecord& record : records) {
    for (const Repetition& repetition : record.repetitions) {
      if (repetition.clocks.sm_clock_mhz) clocks.push_back(*repetition.clocks.sm_clock_mhz);
    }
  }
  return expected_clock(std::move(clocks));
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method method : kMethods) names.emplace_back(name_of(method));
  return names;
}

}  // namespace fp8_sdpa::bench
