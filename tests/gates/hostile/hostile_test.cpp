// The API under hostile arguments, drawn at the boundaries of sizes, strides, alignment and
// overlap: what problem.hpp calls legal is accepted, what it does not is refused with one line, and
// accepted problems are computed without a byte outside their tensors. SDPA_HOSTILE_DRAWS sets how
// many draws each test gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attention/sequences.hpp"
#include "dispatch/check_problem.hpp"
#include "fp8_sdpa/plan.hpp"
#include "tests/gates/gate_cases.hpp"
#include "tests/gates/hostile/draw.hpp"
#include "tests/gates/hostile/placed.hpp"
#include "tests/host/kernels/header_words.hpp"

namespace fp8_sdpa::tests {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;  // it sees each access of few problems
#else
constexpr bool kSanitizer = false;
#endif

int draws_or(int usual) {
  const char* text = std::getenv("SDPA_HOSTILE_DRAWS");
  return text != nullptr ? std::max(1, std::atoi(text)) : usual;
}

/// Sizes whose elements may be looked at one by one, also where strides of 0 repeat them.
bool is_small(const Problem& p) {
  constexpr std::int64_t kElements = 100'000;
  const Wide rows = Wide{p.batch} * p.heads_q * std::max(p.seq_q, p.seq_kv);
  if (rows * p.head_dim > kElements) return false;
  for (const View& view : views_of(p)) {
    const auto& [batch, heads, seq, dim] = view.sizes;
    if (Wide{batch} * heads * seq * dim > 10 * kElements) return false;
  }
  for (int i = 0; i < kPointers; ++i) {
    if (bytes_of(p, i).size() > 10 * kElements) return false;
  }
  return true;
}

/// One line, of a kind.
void expect_reason(const Status& status, StatusCode code) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_FALSE(status.message().empty());
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

TEST(Hostile, WhatTheHeaderCallsLegalIsAccepted) {
  const int draws = draws_or(kSanitizer ? 10'000 : 100'000);
  int accepted = 0;
  int looked_at = 0;
  std::set<std::string> reasons;
  for (int i = 0; i < draws; ++i) {
    HostileDraw draw(static_cast<std::uint64_t>(i));
    const Problem& p = draw.problem();
    SCOPED_TRACE(i);
    const Status status = detail::check_problem(p);
    ASSERT_EQ(status.ok(), legal(p)) << status.message();
    const Variant& variant = variants()[draw.number() % variants().size()];
    const Status planned = plan(p, host_executor(), &variant).status();
    if (!status.ok()) {
      expect_reason(status, StatusCode::kInvalidArgument);
      EXPECT_EQ(planned.message(), status.message());
      std::string reason = status.message();
      std::erase_if(reason, [](char c) { return c == '-' || (c >= '0' && c <= '9'); });
      reasons.insert(reason);
    } else {
      ++accepted;
      if (!planned.ok()) expect_reason(planned, StatusCode::kUnsupported);
      if (is_small(p) && i % 8 == 0) {
        ++looked_at;
        EXPECT_FALSE(shares_memory(p));
      }
    }
    ASSERT_FALSE(HasFailure());
  }
  // The draws are of both kinds, and see every reason for every field.
  EXPECT_GT(accepted, draws / 3);
  EXPECT_LT(accepted, draws / 3 * 2);
  EXPECT_GT(looked_at, draws / 50);
  EXPECT_GT(reasons.size(), 120U);
}

volatile std::sig_atomic_t g_draw = 0;
void say_which(int signal) {
  std::fprintf(stderr, "draw %d: a byte outside\n", static_cast<int>(g_draw));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// The same with tensors that are contiguous and row-major.
Problem contiguous(Problem p) {
  const auto views = views_of(p);
  Tensor* const tensors[] = {&p.q, &p.k, &p.v, &p.o};
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& [batch, heads, seq, dim] = views[i].sizes;
    *tensors[i] = {tensors[i]->data, tensors[i]->dtype, heads * seq * dim, seq * dim, dim, 1};
  }
  return p;
}

/// Offsets, lengths and entries of a ragged problem; and with one that no tensor has.
WordsOf draw_words(const Problem& p, HostileDraw& draw) {
  WordsOf words;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int32_t>(draw.number() % static_cast<std::uint64_t>(n));
  };
  const auto offsets = [&](int pointer, std::int64_t total, std::int64_t most) {
    std::int64_t row = below(std::min<std::int64_t>(total, 2) + 1);
    for (int b = 0; b <= p.batch; ++b) {
      words[pointer].push_back(static_cast<std::int32_t>(row));
      row += below(std::min(total - row, most) + 1);
    }
  };
  if (p.ragged.cu_seqlens_q != nullptr) offsets(kOffsetsQ, p.ragged.total_q, p.seq_q);
  if (p.ragged.cu_seqlens_kv != nullptr) offsets(kOffsetsKv, p.ragged.total_kv, p.seq_kv);
  for (int b = 0; b < p.batch && p.ragged.seqused_kv != nullptr; ++b) {
    words[kLengths].push_back(below(p.seq_kv + 1));
  }
  for (int i = 0; i < p.batch * p.pages.max_pages; ++i) {
    words[kTable].push_back(below(p.pages.pages));
  }
  return words;
}
/// Words of an array, one or all, become what no tensor has: the first that is none, or any.
void spoil_words(const Problem& p, WordsOf& words, HostileDraw& draw) {
  const auto first_that_is_none = [&](int pointer) {
    const std::int64_t most = pointer == kTable      ? p.pages.pages - 1
                              : pointer == kLengths  ? p.seq_kv
                              : pointer == kOffsetsQ ? p.ragged.total_q
                                                     : p.ragged.total_kv;
    return static_cast<std::int32_t>(most + 1);
  };
  for (auto& [pointer, array] : words) {
    constexpr std::int32_t kNone[] = {-1, INT_MIN, INT_MAX, INT_MAX - 1, 300, 1 << 20};
    if (draw.number() % 2 == 0) continue;
    const std::int32_t none =
        draw.number() % 2 == 0 ? first_that_is_none(pointer) : kNone[draw.number() % 6];
    array[draw.number() % array.size()] = none;
    if (draw.number() % 2 == 0) std::fill(array.begin(), array.end(), none);
  }
}

/// Whether a length or a page is none that a row of a sequence needs, by the header's words.
bool is_fault(const Problem& p, const WordsOf& words) {
  const auto rows = [&](int pointer, int b, std::int64_t total, std::int64_t most) {
    const auto found = words.find(pointer);
    if (found == words.end()) return most;
    const std::int64_t from = found->second[static_cast<std::size_t>(b)];
    const std::int64_t to = found->second[static_cast<std::size_t>(b) + 1];
    const bool fits = from >= 0 && to >= from && to <= total && to - from <= most;
    return fits ? to - from : std::int64_t{-1};
  };
  for (int b = 0; b < p.batch; ++b) {
    const std::int64_t queries = rows(kOffsetsQ, b, p.ragged.total_q, p.seq_q);
    if (queries < 0) return true;
    std::int64_t keys = rows(kOffsetsKv, b, p.ragged.total_kv, p.seq_kv);
    if (words.contains(kLengths)) keys = words.at(kLengths)[static_cast<std::size_t>(b)];
    if (keys < 0 || keys > p.seq_kv) return true;
    if (queries == 0) continue;
    for (int i = 0; words.contains(kTable) && std::int64_t{i} * p.pages.page_size < keys; ++i) {
      const int entry = words.at(kTable)[static_cast<std::size_t>(b * p.pages.max_pages + i)];
      if (entry < 0 || entry >= p.pages.pages) return true;
    }
  }
  return false;
}

/// The problem as drawn and as a contiguous copy: equal bits.
void expect_as_a_copy(const Problem& p, const Variant& variant, HostileDraw& draw,
                      bool with_words_that_are_none) {
  WordsOf words = draw_words(p, draw);
  if (with_words_that_are_none) spoil_words(p, words, draw);
  Placed drawn(p, words, draw.number() % 4 != 0);
  Placed copy(contiguous(p), words, true);
  for (const int input : {0, 1, 2}) {
    drawn.for_each_code(input, [&](std::uint8_t& code) {
      code = static_cast<std::uint8_t>(draw.number() & 0xBF);  // below 2 in both formats
    });
    std::vector<std::uint8_t> codes;
    drawn.for_each_code(input, [&](std::uint8_t& code) { codes.push_back(code); });
    auto next = codes.begin();
    copy.for_each_code(input, [&](std::uint8_t& code) { code = *next++; });
  }
  for (Placed* each : {&drawn, &copy}) {
    const Status ran = each->run(variant);
    ASSERT_TRUE(ran.ok()) << ran.message();
  }
  const std::vector<std::uint32_t> results = drawn.results();
  EXPECT_TRUE(results == copy.results());
  if (p.fault != nullptr) {
    EXPECT_EQ(results.back(), is_fault(p, words) ? 1U : 0U) << "fault";
  }
}

/// Whether a variant may say this of a small problem.
bool may_decline(const Status& status, const Problem& p) {
  bool broadcast_rows = false;
  for (const View& view : views_of(p)) {
    const std::size_t rows = 5 - view.unit_axis();
    if (view.sizes[rows] > 1 && view.strides()[rows] == 0) broadcast_rows = true;
  }
  const auto says = [&](const char* text) {
    return status.message().find(text) != std::string::npos;
  };
  const bool whole = !attention::is_ragged_or_paged(p);
  return is_known_decline(status) || says(" gives no LSE ") ||
         (says(" serves whole tensors, not ") && !whole) ||
         (says(" serves pages of 8 keys or more ") && p.pages.block_table != nullptr) ||
         (says(" serves no broadcast rows ") && broadcast_rows);
}

/// Which variants compute a draw: all that serve it, and one of them alone for whole tensors.
std::vector<const Variant*> variants_for(const Problem& p, HostileDraw& draw) {
  std::vector<const Variant*> serving;
  for (const Variant& variant : variants()) {
    const Status status = variant.supports(p, host_executor());
    if (status.ok()) serving.push_back(&variant);
    EXPECT_TRUE(status.ok() || may_decline(status, p)) << status.message();
  }
  if (attention::is_ragged_or_paged(p) || serving.empty()) return serving;
  return {serving[draw.number() % serving.size()]};
}

/// Draws that are accepted and small are computed. Returns by which variants, and how often.
std::map<std::string, int> compute_draws(int draws, bool of_sequences) {
  if (!kSanitizer) std::signal(SIGSEGV, say_which);
  std::map<std::string, int> run;
  for (int i = 0; i < draws && !testing::Test::HasFailure(); ++i) {
    HostileDraw draw(static_cast<std::uint64_t>(i), of_sequences);
    Problem p = draw.problem();
    if (!detail::check_problem(p).ok() || !is_small(p)) continue;
    if (of_sequences && !attention::is_ragged_or_paged(p)) continue;
    g_draw = i;
    p.softmax_scale = 0.125F;
    SCOPED_TRACE(testing::Message() << "draw " << i);
    for (const Variant* variant : variants_for(p, draw)) {
      SCOPED_TRACE(variant->name);
      expect_as_a_copy(p, *variant, draw, of_sequences);
      ++run[std::string(variant->name)];
    }
  }
  if (!kSanitizer) std::signal(SIGSEGV, SIG_DFL);
  return run;
}

TEST(Hostile, AcceptedProblemsAreComputedWithoutAByteOutside) {
  const int draws = draws_or(kSanitizer ? 600 : 3000);
  int run = 0;
  for (const auto& [variant, times] : compute_draws(draws, false)) run += times;
  EXPECT_GT(run, draws / 20);
  RecordProperty("computed", run);
}

/// Packed, of different lengths or in pages, with offsets, lengths and entries that are none.
TEST(Hostile, WordsThatAreNoneAreNotFollowed) {
  const int draws = draws_or(kSanitizer ? 600 : 6000);
  const auto run = compute_draws(draws, true);
  for (const char* variant : {"decode_split_kv", "sm90_ragged"}) {
    ASSERT_TRUE(run.contains(variant));
    EXPECT_GT(run.at(variant), draws / 100) << variant;
    RecordProperty(variant, run.at(variant));
  }
}

}  // namespace
}  // namespace fp8_sdpa::tests
