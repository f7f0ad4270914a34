// Who does what: every KV tile of every work tile once, parts numbered as the merge reads them.
#include "sm90/work/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <utility>
#include <vector>

#include "attention/divisor.hpp"
#include "sm90/work/work.cuh"

namespace fp8_sdpa::sm90 {
namespace {

struct Deal {
  int work_tiles, blocks;
  std::vector<int> tiles;
  RangeCosts costs{};
  std::vector<double> parts{};  ///< none: all 1

  WorkTileSize size(int work_tile) const {
    const auto i = static_cast<std::size_t>(work_tile);
    return {tiles[i], parts.empty() ? 1.0 : parts[i]};
  }
  Makespan make() const {
    return make_schedule(
        work_tiles, blocks, [this](int i) { return size(i); }, costs);
  }
};

/// What the kernel's blocks do with a schedule: tiles done of each work tile, and parts of the cut
/// ones.
struct Done {
  std::vector<int> tiles, splits;
};

Done carry_out(const Deal& deal, const Schedule& schedule) {
  Done done{std::vector<int>(deal.tiles.size(), 0), std::vector<int>(deal.tiles.size(), 0)};
  for (int block = 0; block < deal.blocks; ++block) {
    for (int round = 0; round < schedule.rounds; ++round) {
      const int work_tile = work_tile_of_round(round, block, deal.blocks);
      if (work_tile < deal.work_tiles)
        done.tiles[static_cast<std::size_t>(work_tile)] += deal.tiles[work_tile];
    }
    const TailPlace& from = schedule.tail[block];
    const TailPlace& to = schedule.tail[block + 1];
    for (int nth = from.work_tile; nth <= to.work_tile && nth < schedule.tail_work_tiles; ++nth) {
      const auto work_tile = static_cast<std::size_t>(schedule.rounds * deal.blocks + nth);
      const int first = nth == from.work_tile ? from.tile : 0;
      const int end = nth == to.work_tile ? to.tile : deal.tiles[work_tile];
      if (first >= end) continue;
      EXPECT_EQ(done.tiles[work_tile], first) << "splits come in the order of their keys";
      done.tiles[work_tile] += end - first;
      const int splits = schedule.first_split[nth + 1] - schedule.first_split[nth];
      if (splits == 0) {
        EXPECT_TRUE(first == 0 && end == deal.tiles[work_tile]) << "an work_tile that is not cut";
        continue;
      }
      EXPECT_EQ(done.splits[work_tile], nth == from.work_tile ? from.split : 0);
      ++done.splits[work_tile];
    }
  }
  return done;
}

TEST(Schedule, EveryTileIsDoneOnceAndPartsAreCounted) {
  std::mt19937 random(1);
  int with_tail = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Deal deal;
    deal.blocks = 1 + static_cast<int>(random() % kMaxTailBlocks);
    deal.work_tiles = 1 + static_cast<int>(random() % (trial % 2 == 0 ? 40 : 700));
    const int most = 1 + static_cast<int>(random() % 200);
    for (int i = 0; i < deal.work_tiles; ++i)
      deal.tiles.push_back(1 + static_cast<int>(random() % most));
    if (trial % 3 != 0) deal.costs = {1.5, 0.6, 1.0, 0.2};
    const Makespan made = deal.make();
    const Done done = carry_out(deal, made.schedule);
    EXPECT_EQ(done.tiles, deal.tiles) << "trial " << trial;
    if (made.schedule.tail_work_tiles == 0) continue;
    ++with_tail;
    const auto first = static_cast<std::size_t>(made.schedule.rounds * deal.blocks);
    for (int nth = 0; nth < made.schedule.tail_work_tiles; ++nth) {
      EXPECT_EQ(done.splits[first + static_cast<std::size_t>(nth)],
                made.schedule.first_split[nth + 1] - made.schedule.first_split[nth]);
    }
  }
  EXPECT_GT(with_tail, 100);
}

// 1,376 work tiles are 10.42 rounds of 132 blocks; whole, they take 11.
TEST(Schedule, ATailTakesAboutItsShareOfARound) {
  const Deal deal{1376, 132, std::vector<int>(1376, 128), {1.0, 0.5, 0.0, 0.0}};
  const Makespan whole = make_whole_schedule(
      1376, 132, [](int) { return WorkTileSize{128}; }, deal.costs);
  EXPECT_EQ(whole.tiles, 11 * 129.0);
  EXPECT_EQ(whole.schedule.splits(), 0);
  const Makespan made = deal.make();
  EXPECT_EQ(made.schedule.rounds, 10);
  EXPECT_EQ(made.schedule.tail_work_tiles, 56);
  EXPECT_GE(made.tiles, 1376 * 129.0 / 132);
  EXPECT_LT(made.tiles, 1376 * 129.0 / 132 + 6);
}

// Every third work tile has few rows, and its KV tiles take half as long: blocks that have these
// take more of them, and all end at about the same time.
TEST(Schedule, TilesOfFewRowsCountLess) {
  Deal deal{66, 132, std::vector<int>(66, 200)};
  for (int i = 0; i < 66; ++i) deal.parts.push_back(i % 3 == 2 ? 0.5 : 1.0);
  const Makespan made = deal.make();
  constexpr double kMean = 66 * 200 * (2.5 / 3) / 132;
  EXPECT_GE(made.tiles, kMean);
  EXPECT_LT(made.tiles, kMean + 1.5);
  EXPECT_EQ(carry_out(deal, made.schedule).tiles, deal.tiles);
  const Makespan whole = make_whole_schedule(66, 33, [&](int i) { return deal.size(i); }, {});
  EXPECT_EQ(whole.tiles, 400.0);
}

TEST(Schedule, APartOfATileIsThatOfItsWarpgroupsWithRows) {
  Config config;
  config.row_groups = 3;
  EXPECT_EQ(part_of_tile(config, 1000), 1.0);
  EXPECT_EQ(part_of_tile(config, 129), 1.0);
  EXPECT_DOUBLE_EQ(part_of_tile(config, 128), 0.8);
  EXPECT_DOUBLE_EQ(part_of_tile(config, 64), 0.6);
  EXPECT_DOUBLE_EQ(part_of_tile(config, 1), 0.6);
}

// The kernel that merges, and what it reads, shared by all blocks, is paid for.
TEST(Schedule, AMergeCostsWhatItReads) {
  const auto makespan = [](double split, double merge, double load = 0.0) {
    return Deal{1, 8, {800}, {1.0, split, merge, load}}.make();
  };
  const Makespan free = makespan(0.0, 0.0);
  EXPECT_EQ(free.schedule.splits(), 8);
  EXPECT_NEAR(free.tiles, 101.0, 0.125);
  const Makespan paid = makespan(2.0, 10.0);
  EXPECT_EQ(paid.schedule.splits(), 8);
  EXPECT_NEAR(paid.tiles, 103.0 + 10.0 + 2.0, 0.25);
  EXPECT_EQ(makespan(0.0, 700.0).schedule.splits(), 0);
  // Eight splits are loaded four by four.
  EXPECT_NEAR(makespan(0.0, 0.0, 5.0).tiles, 101.0 + 2 * 5.0, 0.125);
}

TEST(Schedule, WhatCannotBeCutStaysWhole) {
  for (const Deal& deal : {Deal{264, 132, std::vector<int>(264, 50), {}}, Deal{3, 4, {1, 0, 1}, {}},
                           Deal{5, kMaxTailBlocks + 1, std::vector<int>(5, 90), {}},
                           Deal{133, 132, std::vector<int>(133, 2), {9.0, 9.0, 0.0, 0.0}}}) {
    const Schedule schedule = deal.make().schedule;
    EXPECT_EQ(schedule.tail_work_tiles, 0);
    EXPECT_EQ(schedule.rounds, (deal.work_tiles + deal.blocks - 1) / deal.blocks);
  }
}

TEST(Passes, AreOfHeadsWhoseKeysAndValuesFitTheCache) {
  using Sizes = std::vector<std::int64_t>;
  const auto sizes = [](int batch, int heads_q, int heads_kv, std::int64_t seq_kv, int head_dim) {
    Problem p;
    p.batch = batch;
    p.heads_q = heads_q;
    p.heads_kv = heads_kv;
    p.seq_q = 4096;
    p.seq_kv = seq_kv;
    p.head_dim = head_dim;
    return pass_sizes(p, p.heads_q, Backend::kDevice);
  };
  EXPECT_EQ(sizes(8, 8, 8, 4096, 256), (Sizes{16, 13, 11, 10, 8}));  // 2 MB a head
  EXPECT_EQ(sizes(1, 16, 16, 4096, 256), (Sizes{16}));
  EXPECT_EQ(sizes(1, 17, 17, 4096, 256), (Sizes{9, 6, 5}));
  EXPECT_EQ(sizes(2, 32, 8, 4096, 256), (Sizes{64}));  // four heads share K and V
  EXPECT_EQ(sizes(2, 36, 9, 4096, 256), (Sizes{36, 24, 18}));
  EXPECT_EQ(sizes(1, 4, 4, 100'000, 256), (Sizes{1}));  // more than fits
  EXPECT_EQ(sizes(1, 8, 2, 100'000, 256), (Sizes{4, 3, 2}));
}

TEST(Passes, AreThoseThatEndFirstTheSmallestOfEqualOnes) {
  const std::vector<double> ends = {0, 0, 7.0, 5.0, 9.0, 5.0, 6.0};
  const auto made = [&](std::int64_t heads) {
    Makespan makespan{ends[static_cast<std::size_t>(heads)], {}};
    makespan.schedule.rounds = static_cast<int>(heads);
    return makespan;
  };
  for (const auto& [sizes, heads] :
       {std::pair<std::vector<std::int64_t>, int>{{6}, 6}, {{6, 5, 4, 3, 2}, 3}, {{5, 4, 2}, 5}}) {
    const Passes passes = shortest_passes(sizes, made);
    EXPECT_EQ(passes.heads, heads);
    EXPECT_EQ(passes.makespan.schedule.rounds, heads);
    EXPECT_EQ(passes.makespan.tiles, ends[static_cast<std::size_t>(heads)]);
  }
}

struct Tile {
  static constexpr int kTileM = 64, kTileN = 48;
  static constexpr bool kPacks = false;
};

// Tiles behind what a work tile's last row sees would change nothing but the time.
TEST(WorkTiles, AreOfTheKeysThatTheirRowsSee) {
  for (const auto& [rows, keys] :
       {std::pair{1, 1}, {64, 48}, {200, 200}, {500, 130}, {130, 500}, {192, 960}}) {
    for (const bool causal : {false, true}) {
      Params p{};
      p.seq_q = rows;
      p.seq_kv = keys;
      p.causal = causal;
      for (int tile = 0; tile * Tile::kTileM < rows; ++tile) {
        const int last_row = std::min((tile + 1) * Tile::kTileM, rows) - 1;
        const int seen = causal ? std::max(0, last_row + 1 + keys - rows) : keys;
        EXPECT_EQ(tiles_seen<Tile>(p, tile), (seen + Tile::kTileN - 1) / Tile::kTileN)
            << rows << " x " << keys << ", tile " << tile << (causal ? ", causal" : "");
      }
    }
  }
}

TEST(Divisor, GivesTheQuotient) {
  std::vector<int> numbers = {0, 1, 2, 3, 5, 127, 128, 129, 65535, 65536, INT_MAX - 1, INT_MAX};
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    numbers.push_back(static_cast<int>(random() >> (1 + random() % 30)));
  }
  for (const int value : numbers) {
    if (value == 0) continue;
    const attention::Divisor by = attention::divisor(value);
    for (const int x : numbers) {
      ASSERT_EQ(attention::quotient(x, by), x / value) << x << " / " << value;
    }
  }
}

}  // namespace
}  // namespace fp8_sdpa::sm90
