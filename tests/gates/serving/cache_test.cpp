// Ragged batches and caches in pages: where a key lies changes no bit, what a sequence does not
// have is not read, and a table that points nowhere is not followed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/gates/serving/caches.hpp"

namespace fp8_sdpa::tests {
namespace {

// A sequence among others, in pages of any size, has the bits of the same sequence alone, which the
// oracle judges.
TEST_P(Caches, ASequenceHasItsBitsWhereverItsKeysLie) {
  if (!ready_) return;
  const std::vector<std::int32_t> lengths = {1500, 1, 0, 1024, 1025, 130};
  const auto batch = static_cast<int>(lengths.size());
  for (const auto& [heads_q, seq_q, head_dim] :
       {std::tuple{8, 1, 64}, {6, 5, 128}, {4, 16, 256}, {2, 3, 128}, {2, 1, 256}}) {
    if (kOneLayout && heads_q == 2) continue;
    const reference::CaseData data =
        codes_of(cache_shape(batch, heads_q, 2, seq_q, 1500, head_dim), 91);
    std::vector<reference::RunOutput> single;
    for (int b = 0; b < batch; ++b) {
      const std::int64_t keys = lengths[static_cast<std::size_t>(b)];
      single.push_back(keys > 0 ? alone(data, b, seq_q, keys) : reference::RunOutput{});
    }
    for (const int page_size : {0, 1, 5, 16, 64, 2048}) {
      if (kOneLayout && page_size != 16) continue;
      SCOPED_TRACE(testing::Message() << heads_q << " heads, " << seq_q << " queries, head_dim "
                                      << head_dim << ", pages of " << page_size);
      const auto cache =
          Cache::make(data, device_,
                      {.lengths = lengths, .page_size = page_size, .token_major = page_size != 5});
      if (!serves(*cache)) continue;
      const reference::RunOutput all = run(*cache, kInvariant);
      for (int b = 0; b < batch; ++b) {
        const reference::RunOutput got = cache->of_sequence(all, b);
        if (lengths[static_cast<std::size_t>(b)] == 0) {
          EXPECT_TRUE(std::ranges::all_of(got.o, [](auto bits) { return bits == 0; }));
          EXPECT_TRUE(std::ranges::all_of(got.lse, [](float x) { return x == -INFINITY; }));
        } else {
          EXPECT_TRUE(got == single[static_cast<std::size_t>(b)]) << "sequence " << b;
        }
      }
      EXPECT_EQ(cache->fault(), 0U);
    }
  }
}

// Splits that the plan cuts by the whole batch, too: pages alone change nothing.
TEST_P(Caches, PagesAndSharedPagesChangeNothing) {
  if (!ready_) return;
  reference::CaseData data = codes_of(cache_shape(3, 4, 2, 2, 700, 128), 92);
  // The same first page of all: a prompt that sequences share.
  const std::int64_t dim = data.shape.head_dim;
  const std::int64_t head = data.shape.seq_kv * dim;
  for (auto* tensor : {&data.k, &data.v}) {
    for (std::int64_t at = 2; at < 6; ++at) {
      std::copy_n(tensor->codes.begin() + at % 2 * head, 16 * dim,
                  tensor->codes.begin() + at * head);
    }
  }
  const std::vector<std::int32_t> lengths = {700, 333, 16};
  const auto whole = Cache::make(data, device_, {.lengths = lengths});
  const reference::RunOutput want = run(*whole);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto paged =
        Cache::make(data, device_,
                    {.lengths = lengths, .page_size = 16, .seed = seed, .share_first_page = true});
    EXPECT_TRUE(run(*paged) == want) << seed;
  }
  const auto bf16 = Cache::make(
      data, device_, {.lengths = {}, .page_size = 16, .lse = false, .output = Dtype::kBFloat16});
  EXPECT_TRUE(run(*bf16).lse.empty());
}

// A plan is made once, and on a GPU captured in a graph: what a server appends, evicts and moves it
// reads when it runs.
TEST_P(Caches, APlanReadsLengthsAndTablesWhenItRuns) {
  if (!ready_) return;
  const reference::CaseData data = codes_of(cache_shape(2, 4, 1, 2, 900, 64), 93);
  const auto cache = Cache::make(data, device_, {.lengths = {900, 900}, .page_size = 64});
  const auto planned = plan(cache->problem, device_, &variant(), kInvariant);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  const auto workspace = reference::Workspace::make(*planned);
  ASSERT_TRUE(workspace.ok()) << workspace.status().message();
  const auto launch = kept_launch(*planned, workspace->data());
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  for (const std::vector<std::int32_t>& lengths :
       std::vector<std::vector<std::int32_t>>{{900, 900}, {1, 899}, {640, 2}, {0, 65}, {900, 64}}) {
    cache->upload_lengths(lengths);
    const auto all = cache->run(*launch);
    ASSERT_TRUE(all.ok()) << all.status().message();
    for (int b = 0; b < 2; ++b) {
      const std::int64_t keys = lengths[static_cast<std::size_t>(b)];
      if (keys == 0) continue;
      EXPECT_TRUE(cache->of_sequence(*all, b) == alone(data, b, 2, keys))
          << "sequence " << b << " of " << keys;
    }
  }
  // Sequences change places: so do their pages.
  const auto half = static_cast<std::ptrdiff_t>(cache->table.size()) / 2;
  std::swap_ranges(cache->table.begin(), cache->table.begin() + half, cache->table.begin() + half);
  cache->upload_table();
  cache->upload_lengths({700, 900});
  const auto all = cache->run(*launch);
  ASSERT_TRUE(all.ok()) << all.status().message();
  reference::CaseData swapped = data;
  const auto kv = static_cast<std::ptrdiff_t>(data.k.codes.size()) / 2;
  for (auto* codes : {&swapped.k.codes, &swapped.v.codes}) {
    std::swap_ranges(codes->begin(), codes->begin() + kv, codes->begin() + kv);
  }
  EXPECT_TRUE(cache->of_sequence(*all, 0) == alone(swapped, 0, 2, 700));
}

// Nothing is read through an entry that is no page: its sequence says so, and no other is touched.
TEST_P(Caches, AHostileTableIsNotFollowed) {
  if (!ready_) return;
  const reference::CaseData data = codes_of(cache_shape(3, 4, 2, 4, 600, 128), 94);
  const auto cache = Cache::make(data, device_, {.lengths = {600, 600, 600}, .page_size = 16});
  const reference::RunOutput good = run(*cache);
  const std::vector<std::int32_t> table = cache->table;
  const int pages = cache->problem.pages.pages;
  const auto columns = static_cast<std::size_t>(cache->problem.pages.max_pages);
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t entry : {-1, pages, kMost, -kMost - 1}) {
    for (const std::size_t column : {std::size_t{0}, std::size_t{17}, columns - 1}) {
      SCOPED_TRACE(testing::Message() << "entry " << entry << " at " << column);
      cache->table = table;
      cache->table[columns + column] = entry;
      cache->upload_table();
      const reference::RunOutput got = run(*cache);
      EXPECT_EQ(cache->fault(), 1U);
      cache->clear_fault();
      expect_nan(cache->of_sequence(got, 1));
      for (const int other : {0, 2}) {
        EXPECT_TRUE(cache->of_sequence(got, other) == cache->of_sequence(good, other)) << other;
      }
    }
  }
  // Any page may be anybody's.
  std::mt19937 random(95);
  for (std::int32_t& entry : cache->table) entry = static_cast<std::int32_t>(random() % pages);
  cache->upload_table();
  static_cast<void>(run(*cache));
  EXPECT_EQ(cache->fault(), 0U);
}

TEST_P(Caches, ALengthThatNoTensorHasIsNotBelieved) {
  if (!ready_) return;
  const reference::CaseData data = codes_of(cache_shape(3, 2, 2, 1, 300, 64), 96);
  for (const int page_size : {0, 16}) {
    const auto cache =
        Cache::make(data, device_, {.lengths = {300, 300, 300}, .page_size = page_size});
    const reference::RunOutput good = run(*cache);
    constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
    for (const std::int32_t length : {-1, 301, kMost, -kMost - 1}) {
      cache->upload_lengths({300, length, 300});
      const reference::RunOutput got = run(*cache);
      EXPECT_EQ(cache->fault(), 1U) << length;
      cache->clear_fault();
      expect_nan(cache->of_sequence(got, 1));
      for (const int other : {0, 2}) {
        EXPECT_TRUE(cache->of_sequence(got, other) == cache->of_sequence(good, other)) << length;
      }
    }
    // Nobody has to listen.
    cache->problem.fault = nullptr;
    expect_nan(cache->of_sequence(run(*cache), 1));
  }
}

// Two plans, of other lengths and splits, on one workspace, in turns: neither counts the other's.
TEST_P(Caches, PlansMayShareAWorkspace) {
  if (!ready_) return;
  const reference::CaseData data = codes_of(cache_shape(1, 2, 1, 1, 3000, 64), 97);
  const auto one = Cache::make(data, device_, {});
  const auto two = Cache::make(data, device_, {.lengths = {2050}});
  const auto first = plan(one->problem, device_, &variant());
  const auto second = plan(two->problem, device_, &variant(), kInvariant);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_GT(second->workspace_bytes(), 0U);
  const auto workspace = reference::Workspace::make(
      first->workspace_bytes() > second->workspace_bytes() ? *first : *second);
  ASSERT_TRUE(workspace.ok()) << workspace.status().message();
  const auto launch_first = kept_launch(*first, workspace->data());
  const auto launch_second = kept_launch(*second, workspace->data());
  ASSERT_TRUE(launch_first.ok() && launch_second.ok());
  const auto want_one = one->run(*launch_first);
  const auto want_two = two->run(*launch_second);
  ASSERT_TRUE(want_one.ok() && want_two.ok());
  for (int i = 0; i < 3; ++i) {
    const auto again_one = one->run(*launch_first);
    const auto again_two = two->run(*launch_second);
    ASSERT_TRUE(again_one.ok() && again_two.ok());
    EXPECT_TRUE(*again_one == *want_one && *again_two == *want_two);
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Caches,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(serving_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
