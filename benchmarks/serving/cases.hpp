// What a server's step is timed on: sequences of given lengths, keys and values in pages, packed or
// dense.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fp8_sdpa::bench {

struct ServingCase {
  std::string name;
  int heads_q, heads_kv;
  int seq_q;  ///< new queries of each sequence, causal; the most of any, where they are packed
  int head_dim;
  int page_size;                      ///< 0: K and V are not in pages
  std::vector<std::int32_t> lengths;  ///< keys of each sequence
  bool ragged = false;                ///< lengths are given in device memory, else all are equal
  /// Of each sequence, packed; so are K and V, if they are not in pages. Empty: seq_q each.
  std::vector<std::int32_t> queries = {};

  int batch() const { return static_cast<int>(lengths.size()); }
  bool packed() const { return !queries.empty(); }
  std::int64_t queries_of(int sequence) const {
    return packed() ? queries[static_cast<std::size_t>(sequence)] : seq_q;
  }
  std::int64_t most_keys() const;
  /// Bytes of K and V that a step reads.
  double bytes() const;
  /// Operations of both matrix products, of keys that a query sees.
  double flop() const;
};

/// The goal shapes: the names of results/h200/serving/floors.json. `seed`: of the ragged lengths.
std::vector<ServingCase> goal_cases(std::uint64_t seed);

/// `count` cases drawn at random: heads, groups, pages, lengths equal or not.
std::vector<ServingCase> drawn_cases(int count, std::uint64_t seed);

}  // namespace fp8_sdpa::bench
