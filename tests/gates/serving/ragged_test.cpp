// Packed queries and keys: where a sequence's rows lie, and whose rows share a tile, changes no bit
// of it; rows that no sequence has are not written; and offsets that no tensor has are not
// believed.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/gates/serving/caches.hpp"

namespace fp8_sdpa::tests {
namespace {

using Lengths = std::vector<std::int32_t>;
class Ragged : public Caches {
 protected:
  /// Each sequence's part is as `single`; nothing else is written.
  static void expect_parts(const Cache& cache, const reference::RunOutput& all,
                           const std::vector<reference::RunOutput>& single) {
    for (std::size_t b = 0; b < single.size(); ++b) {
      EXPECT_TRUE(cache.of_sequence(all, static_cast<int>(b)) == single[b]) << "sequence " << b;
    }
    EXPECT_EQ(cache.written_elsewhere(all), 0);
    EXPECT_EQ(cache.fault(), 0U);
  }
  /// Each sequence alone; of no keys as rows are that see none.
  std::vector<reference::RunOutput> singles(const reference::CaseData& data, const Lengths& queries,
                                            const Lengths& keys) const {
    std::vector<reference::RunOutput> single;
    for (std::size_t b = 0; b < queries.size(); ++b) {
      const auto rows = static_cast<std::size_t>(queries[b] * data.shape.heads_q);
      if (rows == 0 || keys[b] == 0) {
        const auto dim = static_cast<std::size_t>(data.shape.head_dim);
        single.push_back(
            {std::vector<std::uint16_t>(rows * dim, 0), std::vector<float>(rows, -INFINITY)});
      } else {
        single.push_back(alone(data, static_cast<int>(b), queries[b], keys[b]));
      }
    }
    return single;
  }
};

// More queries than a tile has rows, one and none; more keys than queries and fewer; each head with
// scales of its own, which rows of one tile may not mix up.
TEST_P(Ragged, ASequenceHasItsBitsWhereverItsRowsLie) {
  if (!ready_) return;
  const Lengths queries = {130, 1, 0, 70, 33, 3};
  const Lengths keys = {300, 140, 60, 70, 0, 517};
  for (const auto& [heads_q, heads_kv, head_dim, mask] : {std::tuple{6, 2, 64, Mask::kCausal},
                                                          {2, 2, 128, Mask::kNone},
                                                          {3, 1, 128, Mask::kCausal},
                                                          {4, 1, 256, Mask::kCausal},
                                                          {5, 1, 256, Mask::kNone}}) {
    if (kOneLayout && mask == Mask::kNone) continue;
    reference::Shape shape = cache_shape(6, heads_q, heads_kv, 130, 520, head_dim);
    shape.mask = mask;
    reference::CaseData data = codes_of(shape, 81);
    vary_descales(data);
    const auto single = singles(data, queries, keys);
    struct Layout {
      int page_size;
      bool packed_keys, token_major;
    };
    for (const Layout& layout : {Layout{0, true, true},
                                 {0, false, true},
                                 {16, false, true},
                                 {64, false, false},
                                 {256, false, true}}) {
      if (kOneLayout && layout.page_size != 16) continue;
      SCOPED_TRACE(testing::Message()
                   << heads_q << " heads, head_dim " << head_dim << ", pages of "
                   << layout.page_size << (layout.packed_keys ? ", packed keys" : ""));
      const auto cache = Cache::make(data, device_,
                                     {.lengths = keys,
                                      .queries = queries,
                                      .packed_keys = layout.packed_keys,
                                      .page_size = layout.page_size,
                                      .token_major = layout.token_major});
      expect_parts(*cache, run(*cache, kInvariant), single);
    }
  }
}

// Queries that are not packed, all as many, on packed keys.
TEST_P(Ragged, PackedKeysAloneChangeNothing) {
  if (!ready_) return;
  const Lengths queries(4, 9);
  const Lengths keys = {200, 9, 1, 130};
  reference::CaseData data = codes_of(cache_shape(4, 4, 2, 9, 200, 64), 82);
  vary_descales(data);
  const auto packed = Cache::make(data, device_, {.lengths = keys, .packed_keys = true});
  expect_parts(*packed, run(*packed, kInvariant), singles(data, queries, keys));
}

// Scores of some rows of a tile change their sign, others not; a scale of zero weighs all keys
// alike.
TEST_P(Ragged, RowsOfATileMayHaveScalesOfAnySign) {
  if (!ready_) return;
  const Lengths queries = {40, 7};
  const Lengths keys = {290, 150};
  for (const int head_dim : {64, 128, 256}) {
    reference::CaseData data = codes_of(cache_shape(2, 4, 1, 40, 290, head_dim), 83);
    data.q.descales[1] *= -1.0F;
    data.q.descales[2] = 0.0F;
    data.q.descales[7] *= -1.0F;
    const auto single = singles(data, queries, keys);
    const auto cache =
        Cache::make(data, device_, {.lengths = keys, .queries = queries, .packed_keys = true});
    expect_parts(*cache, run(*cache, kInvariant), single);
  }
}

// A NaN, in a code or a scale, stays in its head and its sequence.
TEST_P(Ragged, ANanReachesItsOwnRowsAlone) {
  if (!ready_) return;
  const Lengths queries = {20, 30, 5};
  const Lengths keys = {140, 200, 131};
  for (const int head_dim : {64, 128, 256}) {
    reference::CaseData data = codes_of(cache_shape(3, 4, 2, 30, 200, head_dim), 84);
    const auto cache = [&] {
      return Cache::make(data, device_, {.lengths = keys, .queries = queries, .packed_keys = true});
    };
    const auto clean = cache();
    const reference::RunOutput want = run(*clean, kInvariant);
    data.q.descales[4 + 1] = std::numeric_limits<float>::quiet_NaN();
    const auto hurt = cache();
    const reference::RunOutput got = run(*hurt, kInvariant);
    for (const int b : {0, 2}) {
      EXPECT_TRUE(hurt->of_sequence(got, b) == clean->of_sequence(want, b)) << b;
    }
    const reference::RunOutput before = clean->of_sequence(want, 1);
    const reference::RunOutput after = hurt->of_sequence(got, 1);
    const auto rows = static_cast<std::size_t>(queries[1]);
    for (std::size_t i = 0; i < after.lse.size(); ++i) {
      const bool is_hurt = i / rows == 1;
      EXPECT_EQ(std::isnan(after.lse[i]), is_hurt) << i;
      const std::uint16_t bits = after.o[i * static_cast<std::size_t>(head_dim)];
      EXPECT_EQ((bits & 0x7FFF) > 0x7C00, is_hurt) << i;
      if (!is_hurt) {
        EXPECT_EQ(bits, before.o[i * static_cast<std::size_t>(head_dim)]) << i;
      }
    }
  }
}

TEST_P(Ragged, OffsetsThatNoTensorHasAreNotBelieved) {
  if (!ready_) return;
  const Lengths queries = {9, 12, 7, 10};
  const Lengths keys = {130, 150, 140, 160};
  const reference::CaseData data = codes_of(cache_shape(4, 4, 2, 12, 160, 64), 85);
  const auto cache =
      Cache::make(data, device_, {.lengths = keys, .queries = queries, .packed_keys = true});
  const reference::RunOutput good = run(*cache);
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto others_are_good = [&](const reference::RunOutput& got) {
    EXPECT_EQ(cache->fault(), 1U);
    cache->clear_fault();
    for (const int b : {0, 3}) {
      EXPECT_TRUE(cache->of_sequence(got, b) == cache->of_sequence(good, b)) << b;
    }
    EXPECT_EQ(cache->written_elsewhere(got), 0);
  };
  // The end of sequence 1 and the start of sequence 2.
  for (const bool of_keys : {false, true}) {
    std::vector<std::int32_t>& offsets = of_keys ? cache->offsets_kv : cache->offsets_q;
    const std::vector<std::int32_t> kept = offsets;
    const auto total = static_cast<std::int32_t>(of_keys ? cache->problem.ragged.total_kv
                                                         : cache->problem.ragged.total_q);
    for (const std::int32_t bad : {-1, total + 1, kMost, -kMost - 1}) {
      SCOPED_TRACE(testing::Message() << (of_keys ? "keys " : "queries ") << bad);
      offsets[2] = bad;
      cache->upload_offsets();
      const reference::RunOutput got = run(*cache);
      others_are_good(got);
      for (const int b : {1, 2}) {  // NaN, or as it was poisoned: which is NaN, too
        const reference::RunOutput part = cache->of_sequence(got, b);
        expect_nan(part);
        if (of_keys) continue;
        for (const std::uint16_t bits : part.o) ASSERT_EQ(bits, 0xFFFF);
      }
    }
    // Sequence 1 has more rows than any, sequence 2 fewer than it had.
    offsets[2] = kept[1] + (of_keys ? 161 : 13);
    cache->upload_offsets();
    others_are_good(run(*cache));
    offsets = kept;
    cache->upload_offsets();
  }
  EXPECT_TRUE(run(*cache) == good);
  EXPECT_EQ(cache->fault(), 0U);
}

TEST_P(Ragged, OfNothingNothingIsWritten) {
  if (!ready_) return;
  const reference::CaseData data = codes_of(cache_shape(3, 2, 1, 5, 140, 64), 86);
  const auto none = Cache::make(
      data, device_, {.lengths = {140, 0, 3}, .queries = {0, 0, 0}, .packed_keys = true});
  const reference::RunOutput output = run(*none);
  EXPECT_EQ(none->written_elsewhere(output), 0);
  EXPECT_EQ(none->fault(), 0U);
  const auto keyless =
      Cache::make(data, device_, {.lengths = {0, 0, 0}, .queries = {5, 0, 2}, .packed_keys = true});
  const reference::RunOutput empty = run(*keyless);
  for (const int b : {0, 1, 2}) expect_empty(keyless->of_sequence(empty, b));
  EXPECT_EQ(keyless->written_elsewhere(empty), 0);
}

// More sequences than are put in order at once, in any order of lengths.
TEST_P(Ragged, ManySequences) {
  if (!ready_) return;
  constexpr int kBatch = 300;
  reference::CaseData data = codes_of(cache_shape(kBatch, 2, 2, 2, 130, 64), 87);
  Lengths queries, keys;
  for (int b = 0; b < kBatch; ++b) {
    queries.push_back(b * 7 % 3);
    keys.push_back(b % 100 == 7 ? 130 : 1 + b * 5 % 8);
  }
  const auto packed =
      Cache::make(data, device_, {.lengths = keys, .queries = queries, .packed_keys = true});
  const auto whole = Cache::make(data, device_, {.lengths = keys});
  const reference::RunOutput got = run(*packed, kInvariant);
  EXPECT_EQ(packed->written_elsewhere(got), 0);
  const reference::RunOutput want = run(*whole, kInvariant);
  for (int b = 0; b < kBatch; ++b) {
    if (queries[static_cast<std::size_t>(b)] != 2) continue;
    EXPECT_TRUE(packed->of_sequence(got, b) == whole->of_sequence(want, b)) << b;
  }
}

// More queries than keys, so that the first rows of a sequence see none: a work tile without keys,
// and behind it those of another sequence.
TEST_P(Ragged, WorkTilesWithoutKeysComeBetweenOthers) {
  if (!ready_) return;
  const Lengths queries = {700, 3, 2};
  const Lengths keys = {20, 150, 10};
  for (const int head_dim : {64, 128, 256}) {
    reference::CaseData data = codes_of(cache_shape(3, 5, 5, 700, 150, head_dim), 89);
    vary_descales(data);
    const auto cache =
        Cache::make(data, device_, {.lengths = keys, .queries = queries, .packed_keys = true});
    expect_parts(*cache, run(*cache, kInvariant), singles(data, queries, keys));
  }
}

// A page that does not exist makes no later work tile of its block NaN.
TEST_P(Ragged, ABadPageIsForgotten) {
  if (!ready_) return;
  constexpr int kBatch = 40;
  const reference::CaseData data = codes_of(cache_shape(kBatch, 2, 2, 2, 140, 64), 90);
  const auto cache = Cache::make(data, device_, {.lengths = Lengths(kBatch, 140), .page_size = 16});
  const reference::RunOutput good = run(*cache, kInvariant);
  cache->table[0] = -1;
  cache->upload_table();
  const reference::RunOutput got = run(*cache, kInvariant);
  expect_nan(cache->of_sequence(got, 0));
  for (int b = 1; b < kBatch; ++b) {
    EXPECT_TRUE(cache->of_sequence(got, b) == cache->of_sequence(good, b)) << b;
  }
}

// A plan is made once, and on a GPU captured in a graph.
TEST_P(Ragged, APlanReadsOffsetsWhenItRuns) {
  if (!ready_) return;
  reference::CaseData data = codes_of(cache_shape(3, 4, 1, 40, 300, 128), 88);
  const auto cache = Cache::make(
      data, device_, {.lengths = {300, 200, 150}, .queries = {40, 40, 40}, .packed_keys = true});
  const auto planned = plan(cache->problem, device_, &variant(), kInvariant);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  const auto workspace = reference::Workspace::make(*planned);
  ASSERT_TRUE(workspace.ok()) << workspace.status().message();
  const auto launch = kept_launch(*planned, workspace->data());
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  const auto all = cache->run(*launch);
  ASSERT_TRUE(all.ok()) << all.status().message();
  expect_parts(*cache, *all, singles(data, {40, 40, 40}, {300, 200, 150}));
  // The first two sequences have fewer rows: none of the others moves.
  cache->offsets_q[1] -= 39;
  cache->offsets_kv[1] -= 100;
  cache->upload_offsets();
  const auto fewer = cache->run(*launch);
  ASSERT_TRUE(fewer.ok()) << fewer.status().message();
  EXPECT_TRUE(cache->of_sequence(*fewer, 2) == cache->of_sequence(*all, 2));
  const reference::RunOutput one = alone(data, 0, 1, 200);
  const reference::RunOutput got = cache->of_sequence(*fewer, 0);
  for (std::size_t head = 0; head < 4; ++head) EXPECT_EQ(got.lse[head * 40], one.lse[head]);
  EXPECT_EQ(cache->fault(), 1U);  // the second has 79 queries now, more than any
}

INSTANTIATE_TEST_SUITE_P(Gates, Ragged,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(serving_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
