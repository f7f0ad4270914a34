// A server's decode steps: the cases, the caches they are timed on, and what fp64 attention says.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/command/paths.hpp"
#include "benchmarks/files/validate.hpp"
#include "benchmarks/peers/peer.hpp"
#include "benchmarks/serving/cache.hpp"
#include "benchmarks/serving/contest.hpp"
#include "dispatch/variant.hpp"
#include "dispatch/variant_impl.hpp"
#include "fp8_sdpa/plan.hpp"

namespace fp8_sdpa::bench {
namespace {

ServingCase small(int seq_q, int page_size, bool ragged) {
  return {"small", 6, 2, seq_q, 64, page_size, {300, ragged ? 1 : 300, ragged ? 77 : 300}, ragged};
}

Result<ServingErrors> run(const Cache& cache, const Problem& problem, const Variant& variant) {
  const auto made = plan(problem, host_executor(), &variant);
  if (!made.ok()) return made.status();
  const auto workspace = reference::Workspace::make(*made);
  if (!workspace.ok()) return workspace.status();
  if (Status s = cache.poison(); !s.ok()) return s;
  if (Status s = forward(*made, workspace->data(), nullptr); !s.ok()) return s;
  return cache.errors();
}

/// A right kernel passes; one that takes keys for values, or writes nothing, does not.
void expect_judged(const Cache& cache, const char* variant) {
  SCOPED_TRACE(variant);
  const Variant& of = **find_variant(variant);
  const auto errors = run(cache, cache.problem(), of);
  ASSERT_TRUE(errors.ok()) << errors.status().message();
  EXPECT_LE(errors->o, most_error(of));
  EXPECT_GT(errors->o, 0.0);
  EXPECT_LE(errors->lse, most_error(of));
  Problem other_scale = cache.problem();
  other_scale.softmax_scale *= of.fp8_p() ? 1.5F : 1.05F;
  const auto of_scale = run(cache, other_scale, of);
  ASSERT_TRUE(of_scale.ok());
  EXPECT_GT(of_scale->o, most_error(of));
  EXPECT_GT(of_scale->lse, most_error(of));
  Problem keys_as_values = cache.problem();
  keys_as_values.v = keys_as_values.k;
  EXPECT_GT(run(cache, keys_as_values, of)->o, most_error(of));
  ASSERT_TRUE(cache.poison().ok());
  EXPECT_TRUE(std::isnan(cache.errors()->o));
  EXPECT_TRUE(std::isnan(cache.errors()->lse));
}

// Whether it is there or not: a peer that is taken to serve whole tensors alone is left out of
// every case in pages.
TEST(Serving, FlashAttentionIsGivenPages) {
  ASSERT_EQ(flash3_source().peers.size(), 2U);
  for (const Peer& peer : flash3_source().peers) {
    EXPECT_TRUE(peer.variant.impl->serves_caches) << peer.variant.name;
    EXPECT_FALSE(peer.variant.impl->serves_blocks) << peer.variant.name;
  }
}

TEST(Serving, FlashAttentionIsNotGivenPackedSequencesOrLengthsOfDenseOnes) {
  Device hopper = host_executor();
  hopper.backend = Backend::kDevice;
  ServingCase packed = small(3, 0, false);
  packed.queries = {3, 1, 2};
  const std::vector<std::uint8_t> codes = draw_codes(3);
  for (const auto& [serving_case, reason] :
       {std::pair{packed, "packed sequences"}, {small(1, 0, true), "lengths of dense tensors"}}) {
    const auto cache = Cache::make(serving_case, codes, 5, host_executor());
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    for (const Peer& peer : flash3_source().peers) {
      const Status status = peer.variant.impl->supports(cache->problem(), hopper);
      EXPECT_EQ(status.code(), StatusCode::kUnsupported);
      EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
    }
  }
}

TEST(Serving, WhatARightKernelLeavesPassesAndWhatAWrongOneLeavesDoesNot) {
  const std::vector<std::uint8_t> codes = draw_codes(3);
  for (const bool ragged : {false, true}) {
    for (const int page_size : {0, 16, 24}) {
      const auto cache = Cache::make(small(2, page_size, ragged), codes, 4, host_executor());
      ASSERT_TRUE(cache.ok()) << cache.status().message();
      expect_judged(*cache, "decode_split_kv");
      if (page_size != 24) expect_judged(*cache, "sm90_ragged");
    }
  }
}

// Prompts of 150, 1 and 77 tokens on as many keys, or more.
TEST(Serving, PackedQueriesAreJudgedToo) {
  const std::vector<std::uint8_t> codes = draw_codes(5);
  for (const int page_size : {0, 16}) {
    ServingCase packed = small(150, page_size, true);
    packed.queries = {150, 1, 77};
    const auto cache = Cache::make(packed, codes, 4, host_executor());
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    expect_judged(*cache, "decode_split_kv");
    expect_judged(*cache, "sm90_ragged");
  }
}

TEST(Serving, OperationsAreOfTheKeysThatQueriesSee) {
  EXPECT_EQ(small(1, 16, false).flop(), 4.0 * 900 * 6 * 64);
  ServingCase packed = small(150, 0, true);
  packed.queries = {150, 1, 77};
  EXPECT_EQ(packed.flop(), 4.0 * (150 * 225.5 + 1 + 77 * 39) * 6 * 64);
}

TEST(Serving, BytesAreOfTheKeysThatThereAre) {
  EXPECT_EQ(small(1, 16, false).bytes(), 2.0 * 900 * 2 * 64);
  EXPECT_EQ(small(1, 16, true).bytes(), 2.0 * 378 * 2 * 64);
}

TEST(Serving, DrawnCasesAreServedAndNoTwoSeedsDrawTheSame) {
  const auto cases = drawn_cases(40, 8);
  ASSERT_EQ(cases.size(), 40U);
  for (const ServingCase& drawn : cases) {
    EXPECT_LE(drawn.seq_q * (drawn.heads_q / drawn.heads_kv), 64);
    EXPECT_GE(drawn.lengths.front(), 1);
  }
  EXPECT_NE(drawn_cases(1, 9)[0].lengths, cases[0].lengths);
}

TEST(Serving, TheDocumentHasItsSchemasForm) {
  ServingRow good{small(1, 16, true), "decode_split_kv", 10.0, 0.0};
  ServingRow wrong = good;
  wrong.passed = false;
  RunInfo run;
  run.backend = Backend::kDevice;
  run.build.git_sha = run.build.git_branch = "x";
  constexpr double kRead = 3e6;
  const nlohmann::json document = serving_document(run, {good, wrong, good}, kRead);
  const auto schema = read_json(default_schema_folder() + "/serving.schema.json");
  ASSERT_TRUE(schema.ok()) << schema.status().message();
  const Status valid = validate_document(document, *schema, "serving.json");
  EXPECT_TRUE(valid.ok()) << valid.message();
  ASSERT_EQ(document.at("results").size(), 2U) << "of what passed";
  const nlohmann::json& row = document.at("results").at(0);
  EXPECT_EQ(document.at("read_bytes_per_s"), 3e12);
  EXPECT_EQ(row.at("ragged"), true);
  EXPECT_EQ(row.at("batch"), 3);
  EXPECT_EQ(row.at("keys"), 300);
  EXPECT_EQ(row.at("bytes_per_s"), good.shape.bytes() / 10.0 * 1e6);
  EXPECT_TRUE(row.at("flash3_us").is_null());
}

// Every row at 10 us, FlashAttention-3 at 15 but for one.
TEST(Serving, FloorsAreMadeOfTheGoalShapes) {
  std::vector<ServingRow> rows;
  std::set<std::string> names;
  for (const ServingCase& goal : goal_cases(1)) {
    rows.push_back({goal, "decode_split_kv", 10.0, 15.0});
    names.insert(goal.name);
  }
  EXPECT_EQ(names.size(), rows.size());
  rows[2].flash3_us = 11.0;
  rows[3].flash3_us = 0.0;
  rows[9].us = 12.0;  // eight queries
  constexpr double kRead = 1e6;
  const auto floors = serving_floors(rows, kRead);
  ASSERT_EQ(floors.size(), 14U);
  const auto value = [&](const std::string& name) {
    for (const auto& floor : floors) {
      if (floor.at("name") == name) return floor.at("value").get<double>();
    }
    ADD_FAILURE() << name;
    return 0.0;
  };
  EXPECT_EQ(value("d128_b128_2k_page16, share of the read rate"),
            std::round(128.0 * 2048 * 8 * 128 * 2 / 10 / kRead * 1000) / 1000);
  EXPECT_EQ(value("d128_b1_2k_page64"), 10.0);
  EXPECT_NEAR(value("ragged prefill over dense, equal work"), 1.0, 0.01);
  EXPECT_EQ(value("8 queries over 1, d128_b32_8k_page64"), 1.2);
  EXPECT_EQ(value("FlashAttention-3 over ours, least: " + rows[2].shape.name), 1.1);
  EXPECT_NE(table_line(rows[2], kRead).find("| 11.0 | 1.10 |"), std::string::npos);
  EXPECT_NE(table_line(rows[3], kRead).find("| - | - |"), std::string::npos);
  rows[4].passed = false;
  EXPECT_NE(table_line(rows[4], kRead).find("| wrong | - | - | - | - | - |"), std::string::npos);
}

}  // namespace
}  // namespace fp8_sdpa::bench
