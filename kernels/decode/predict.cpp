#include <algorithm>
#include <limits>

#include "decode/config.hpp"
#include "decode/decode.hpp"

namespace fp8_sdpa::decode {

// Two blocks on each multiprocessor, or one of many rows, take splits in turns, at the rate of
// memory or of the multiplies.
double predicted_us(const Problem& p, int sm_count, const PlanOptions& options) {
  constexpr double kLaunchUs = 9.5;
  constexpr double kMergeUs = 2.0;
  constexpr double kBytesPerUs = 25000.0;   // of a multiprocessor
  constexpr double kScoresPerUs = 12000.0;  // of a multiprocessor, per 64 dims
  const std::int64_t rows = p.seq_q * (p.heads_q / p.heads_kv);
  if (rows > kMaxRows) return std::numeric_limits<double>::infinity();
  const auto tile_rows = static_cast<double>((rows + kWarpRows - 1) / kWarpRows * kWarpRows);
  const int at_once = row_groups(static_cast<int>(rows)) == 1 ? 2 : 1;
  const std::int64_t keys = std::min<std::int64_t>(split_keys(p, sm_count, options), p.seq_kv);
  const std::int64_t splits = (p.seq_kv + keys - 1) / keys;
  const std::int64_t slots = std::int64_t{sm_count} * at_once;
  const std::int64_t blocks = std::int64_t{p.batch} * p.heads_kv * splits;
  const auto rounds = static_cast<double>((blocks + slots - 1) / slots);
  const double copy = 2.0 * p.head_dim / kBytesPerUs;
  const double multiply = tile_rows * (p.head_dim / 64.0) / kScoresPerUs;
  return kLaunchUs + (splits > 1 ? kMergeUs : 0.0) +
         rounds * at_once * static_cast<double>(keys) * std::max(copy, multiply);
}

}  // namespace fp8_sdpa::decode
