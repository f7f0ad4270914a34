// The suites of every variant that serves caches.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/gates/serving/cache.hpp"
#include "tests/gates/subject.hpp"

namespace fp8_sdpa::tests {

/// Causal.
reference::Shape cache_shape(int batch, int heads_q, int heads_kv, std::int64_t seq_q,
                             std::int64_t seq_kv, int head_dim);

/// Any variant that says that it serves caches.
std::vector<const Variant*> serving_variants();

inline constexpr PlanOptions kInvariant{.batch_invariant = true};

/// ThreadSanitizer is asked who waits for whom, which one layout of each head_dim shows.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kOneLayout = true;
#else
inline constexpr bool kOneLayout = false;
#endif

/// Every variant that serves caches, on each backend.
class Caches : public VariantTest {
 protected:
  /// Whether the variant serves the cache's pages; if not, it must say that their size is why.
  bool serves(const Cache& cache) const;
  reference::RunOutput run(Cache& cache, const PlanOptions& options = {}) const;
  /// Sequence `b` of `data`, its first `queries` queries and `keys` keys, as a ragged batch of one;
  /// judged by the oracle.
  reference::RunOutput alone(const reference::CaseData& data, int b, std::int64_t queries,
                             std::int64_t keys) const;
  static void expect_nan(const reference::RunOutput& output) {
    for (const std::uint16_t bits : output.o) ASSERT_GT(bits & 0x7FFF, 0x7C00) << "of half";
    for (const float lse : output.lse) ASSERT_TRUE(std::isnan(lse)) << lse;
  }
  /// As rows are that see no key.
  static void expect_empty(const reference::RunOutput& output) {
    for (const std::uint16_t bits : output.o) ASSERT_EQ(bits, 0);
    for (const float lse : output.lse) ASSERT_EQ(lse, -INFINITY);
  }
};

}  // namespace fp8_sdpa::tests
