#include <algorithm>

#include "benchmarks/sweep/sweep.hpp"

namespace fp8_sdpa::bench {

std::vector<SweepPoint> sweep_points(int first, int last, int step, int head_dim) {
  constexpr int kHeadsOfBatch = 8;
  std::vector<SweepPoint> places;
  for (int level = first; level <= last; level += step) {
    for (int seq_bits = kSmallestSeqBits; seq_bits <= kLargestSeqBits; ++seq_bits) {
      const int head_bits = level - 2 * seq_bits;
      if (head_bits < 0 || head_bits > kLargestHeadBits) continue;
      const int seq = 1 << seq_bits;
      const int batch_heads = 1 << head_bits;
      SweepPoint place;
      place.level = level;
      reference::Shape& shape = place.shape;
      shape.name = "s" + std::to_string(seq) + "_bh" + std::to_string(batch_heads);
      shape.heads_q = shape.heads_kv = std::min(kHeadsOfBatch, batch_heads);
      shape.batch = batch_heads / shape.heads_q;
      shape.seq_q = shape.seq_kv = seq;
      shape.head_dim = head_dim;
      places.push_back(std::move(place));
    }
  }
  return places;
}

std::vector<SweepPoint> points_of_part(std::vector<SweepPoint> places, int part, int parts) {
  std::stable_sort(places.begin(), places.end(),
                   [](const SweepPoint& a, const SweepPoint& b) { return a.level > b.level; });
  std::vector<SweepPoint> dealt;
  for (std::size_t i = static_cast<std::size_t>(part); i < places.size();
       i += static_cast<std::size_t>(parts)) {
    dealt.push_back(std::move(places[i]));
  }
  return dealt;
}

std::int64_t tensor_bytes(const reference::Shape& shape) {
  const std::int64_t queries = std::int64_t{shape.batch} * shape.heads_q;
  const std::int64_t keys = std::int64_t{shape.batch} * shape.heads_kv;
  const std::int64_t q = queries * shape.seq_q * shape.head_dim;
  const std::int64_t k = keys * shape.seq_kv * shape.head_dim;
  constexpr std::int64_t kOutputBytes = 2;
  return q + 2 * k + kOutputBytes * q +
         static_cast<std::int64_t>(sizeof(float)) * (queries + 2 * keys);
}

}  // namespace fp8_sdpa::bench
