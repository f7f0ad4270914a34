// The API under hostile arguments, drawn at the boundaries of sizes, strides, alignment and
// overlap: what problem.hpp calls legal is accepted, what it does not is refused with one line, and
// accepted problems are computed without a byte outside their tensors.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dispatch/check_problem.hpp"
#include "fp8_sdpa/plan.hpp"
#include "tests/gates/gate_cases.hpp"
#include "tests/host/kernels/header_words.hpp"

namespace fp8_sdpa::tests {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;  // it sees each access of few problems
#else
constexpr bool kSanitizer = false;
#endif

/// Legal problems in odd layouts, and the same with up to three fields at a boundary.
class Draw {
 public:
  explicit Draw(std::uint64_t index) : random_(index) {
    p_ = made_up(pick({1, 1, 2, 3}), 1, pick({1, 1, 2, 3}), pick({1, 1, 2, 3, 5, 17, 33, 130}),
                 pick({1, 1, 2, 3, 5, 16, 17, 33, 129, 140}),
                 pick({64, 64, 64, 64, 128, 256, 1, 33}));
    p_.heads_q = p_.heads_kv * pick({1, 1, 1, 2, 3});
    p_.mask = one_in(4) ? Mask::kCausal : Mask::kNone;
    p_.softmax_scale = pick({0.0F, 0.125F, FLT_MIN, FLT_MAX});
    const Dtype input = pick({Dtype::kE4M3, Dtype::kE4M3, Dtype::kE4M3, Dtype::kE5M2});
    for (Tensor* t : {&p_.q, &p_.k, &p_.v}) t->dtype = input;
    p_.o.dtype = pick({Dtype::kHalf, Dtype::kBFloat16});
    if (one_in(4)) p_.v.stride_dim = 0;  // transposed
    for (int i = 0; i < 4; ++i) lay_out(i);
    std::array<std::uintptr_t, kPointers> places{};
    for (int i = 0; i < kPointers; ++i) places[static_cast<std::size_t>(i)] = address(p_, i);
    places.back() = std::uintptr_t{1} << 61;  // the last one may be as long as it likes
    std::shuffle(places.begin(), places.end(), random_);
    for (int i = 0; i < kPointers; ++i) move_to(p_, i, places[static_cast<std::size_t>(i)]);
    if (one_in(4)) p_.lse = nullptr;
    if (one_in(4)) p_.lse_sum = LseSum::kExact;
    for (int spoils = pick({0, 0, 1, 1, 1, 2, 3}); spoils > 0; --spoils) spoil();
  }
  const Problem& problem() const { return p_; }
  std::uint64_t number() { return random_(); }

 private:
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[random_() % of.size()];
  }
  bool one_in(std::uint64_t n) { return random_() % n == 0; }
  Tensor& tensor(int i) {
    return *std::array{&p_.q, &p_.k, &p_.v, &p_.o}[static_cast<std::size_t>(i)];
  }
  static std::int64_t& stride(Tensor& t, std::size_t axis) {
    return *std::array{&t.stride_batch, &t.stride_head, &t.stride_seq, &t.stride_dim}[axis];
  }

  /// The axes in any order, with gaps or without; inputs are broadcast at times.
  void lay_out(int i) {
    Tensor& t = tensor(i);
    const View view = views_of(p_)[static_cast<std::size_t>(i)];
    const std::size_t unit = view.unit_axis();
    std::array<std::size_t, 3> order = {0, 1, 5 - unit};
    std::shuffle(order.begin(), order.end(), random_);
    const std::int64_t step = 16 / view.element();
    stride(t, unit) = 1;
    std::int64_t span = view.sizes[unit];
    for (const std::size_t axis : order) {
      span = (span + step - 1) / step * step + step * pick({0, 0, 0, 1, 4});
      stride(t, axis) = span;
      span += span * (view.sizes[axis] - 1);
      if (i != kOutput && axis < 2 && one_in(8)) stride(t, axis) = 0;
      if (view.sizes[axis] == 1 && one_in(2)) {
        stride(t, axis) = pick<std::int64_t>({0, 3, 7, -16, std::int64_t{1} << 41, INT64_MAX});
      }
    }
  }

  void spoil() {
    const int which = static_cast<int>(random_() % 4);
    Tensor& t = tensor(which);
    switch (random_() % 8) {
      case 0: spoil_size(); break;
      case 1:
      case 2:
      case 3: spoil_stride(which); break;
      case 4: {
        const int pointer = static_cast<int>(random_() % kPointers);
        const std::uintptr_t by = pick<std::uintptr_t>({1, 2, 4, 8, 16});
        move_to(p_, pointer, one_in(4) ? 0 : address(p_, pointer) + by);
        break;
      }
      case 5:
      case 6: bring_together(); break;
      default:
        if (one_in(2)) {
          t.dtype = static_cast<Dtype>(random_() % 6);
        } else if (one_in(2)) {
          p_.mask = static_cast<Mask>(random_() % 4);
        } else {
          p_.softmax_scale = pick({-FLT_MIN, -0.0F, INFINITY, -INFINITY, NAN});
        }
    }
  }

  void spoil_size() {
    const std::int64_t seq =
        pick<std::int64_t>({0, -1, 1, 2, 34, INT_MAX / 2, INT_MAX, std::int64_t{1} << 40,
                            (std::int64_t{1} << 40) + 1});
    const int few = pick({0, -1, 1, 2, 3, 4, INT_MIN, INT_MAX, INT_MAX / 2});
    switch (random_() % 6) {
      case 0: p_.batch = few; break;
      case 1: p_.heads_q = few; break;
      case 2: p_.heads_kv = few; break;
      case 3: p_.seq_q = seq; break;
      case 4: p_.seq_kv = seq; break;
      default: p_.head_dim = pick({0, -64, 1, 63, 65, 128, 256, 257, INT_MAX});
    }
  }

  /// A stride beside its own value or beside a limit.
  void spoil_stride(int which) {
    const View view = views_of(p_)[static_cast<std::size_t>(which)];
    const std::size_t axis = random_() % 4;
    std::int64_t& s = stride(tensor(which), axis);
    const std::int64_t step = 16 / view.element();
    const std::int64_t size = std::max<std::int64_t>(1, view.sizes[axis]);
    const std::int64_t most = ((std::int64_t{1} << 60) - 1) / size / step * step;
    if (std::abs(s / 2) > INT64_MAX / 4) s = step;
    s = pick({s - step, s + step, s - 1, s + 1, -s, s / 2, std::int64_t{0}, std::int64_t{1}, step,
              -step, std::int64_t{1} << 40, most, most, most + step, most - 1, INT64_MAX,
              INT64_MIN});
  }

  /// Something that is written and something else touch, or share a step.
  void bring_together() {
    const int written = one_in(2) ? kOutput : kLse;
    const int other = static_cast<int>(random_() % kPointers);
    const bool first = one_in(2);
    const int moved = first ? written : other;
    const int stays = first ? other : written;
    if (other == written || address(p_, moved) == 0 || address(p_, stays) == 0) return;
    const std::uintptr_t by = pick<std::uintptr_t>({0, 0, 4, 16});
    const Bytes there = bytes_of(p_, stays);
    const Bytes mine = bytes_of(p_, moved);
    move_to(p_, moved, one_in(2) ? there.end - by : there.begin - (mine.end - mine.begin) + by);
  }

  std::mt19937_64 random_;
  Problem p_;
};

/// Sizes whose elements may be looked at one by one.
bool is_small(const Problem& p) {
  constexpr std::int64_t kElements = 100'000;
  const Wide rows = Wide{p.batch} * p.heads_q * std::max(p.seq_q, p.seq_kv);
  if (rows * p.head_dim > kElements) return false;
  for (int i = 0; i < 4; ++i) {
    if (bytes_of(p, i).end - bytes_of(p, i).begin > 10 * kElements) return false;
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
  constexpr std::uint64_t kDraws = kSanitizer ? 10'000 : 100'000;
  std::uint64_t accepted = 0;
  std::uint64_t looked_at = 0;
  std::set<std::string> reasons;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    Draw draw(i);
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
  EXPECT_GT(accepted, kDraws / 3);
  EXPECT_LT(accepted, kDraws * 2 / 3);
  EXPECT_GT(looked_at, kDraws / 50);
  EXPECT_GT(reasons.size(), 70U);
}

/// Memory whose last byte (or first) is beside a page that may not be touched.
class Pages {
 public:
  Pages(std::size_t size, std::size_t alignment, bool at_end) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t open = (size + page - 1) / page * page;
    length_ = open + 2 * page;
    void* const all = mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return;
    all_ = static_cast<std::uint8_t*>(all);
    data_ = all_ + page;
    if (mprotect(data_, open, PROT_READ | PROT_WRITE) != 0) return;
    std::memset(data_, 0xFF, open);
    if (at_end) data_ += (open - size) / alignment * alignment;
  }
  ~Pages() {
    if (all_ != nullptr) munmap(all_, length_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::uint8_t* data() const { return data_; }

 private:
  std::size_t length_ = 0;
  std::uint8_t* all_ = nullptr;
  std::uint8_t* data_ = nullptr;
};

/// A problem in memory of its own: 0xFF bytes, NaN in every format, and its elements among them.
class Placed {
 public:
  Placed(const Problem& p, bool at_end) : problem_(p), at_end_(at_end) {
    for (int i = 0; i < kPointers; ++i) {
      if (address(p, i) == 0) continue;
      const Bytes bytes = bytes_of(p, i);
      move_to(problem_, i, add(bytes.end - bytes.begin, i <= kOutput ? 16 : 4));
    }
    for (int i = kLse + 1; i < kPointers; ++i) {
      const Bytes bytes = bytes_of(problem_, i);
      auto* const floats = reinterpret_cast<float*>(bytes.begin);
      for (std::size_t j = 0; j < (bytes.end - bytes.begin) / sizeof(float); ++j) {
        floats[j] = 0.5F + static_cast<float>(j) / 8.0F;
      }
    }
  }

  /// Codes of all elements of an input, in the order of its axes.
  template <class F>
  void for_each_code(int input, F f) const {
    auto* const codes = reinterpret_cast<std::uint8_t*>(address(problem_, input));
    for_each_element(views_of(problem_)[static_cast<std::size_t>(input)],
                     [&](std::int64_t at) { f(codes[at]); });
  }
  Status run(const Variant& variant) {
    const auto made = plan(problem_, host_executor(), &variant);
    if (!made.ok()) return made.status();
    void* workspace = nullptr;
    if (made->workspace_bytes() > 0) {
      workspace = reinterpret_cast<void*>(add(made->workspace_bytes(), 16));
    }
    return forward(*made, workspace, nullptr);
  }
  /// O and LSE in the order of their axes; every other byte of theirs is as it was.
  std::vector<std::uint32_t> results() const {
    std::vector<std::uint32_t> all;
    const Bytes o = bytes_of(problem_, kOutput);
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(o.begin);
    std::vector<bool> is_element((o.end - o.begin) / 2);
    for_each_element(views_of(problem_)[kOutput], [&](std::int64_t at) {
      all.push_back(halves[at]);
      is_element[static_cast<std::size_t>(at)] = true;
    });
    for (std::size_t i = 0; i < is_element.size(); ++i) {
      EXPECT_TRUE(is_element[i] || halves[i] == 0xFFFF) << "written between rows of O";
    }
    if (problem_.lse != nullptr) {
      const Bytes lse = bytes_of(problem_, kLse);
      const auto* const words = reinterpret_cast<const std::uint32_t*>(lse.begin);
      all.insert(all.end(), words, words + (lse.end - lse.begin) / sizeof(float));
    }
    return all;
  }

 private:
  std::uintptr_t add(std::size_t size, std::size_t alignment) {
    pages_.push_back(std::make_unique<Pages>(size, alignment, at_end_));
    return reinterpret_cast<std::uintptr_t>(pages_.back()->data());
  }
  Problem problem_;
  bool at_end_;
  std::vector<std::unique_ptr<Pages>> pages_;
};

volatile std::sig_atomic_t g_draw = 0;
void say_which(int signal) {
  std::fprintf(stderr, "draw %d: a byte outside\n", static_cast<int>(g_draw));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// The problem as drawn and as a contiguous copy: equal bits.
void expect_as_a_copy(const Problem& p, const Variant& variant, Draw& draw) {
  Placed drawn(p, draw.number() % 4 != 0);
  Problem plain = made_up(p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_kv, p.head_dim);
  for (const auto member : {&Problem::q, &Problem::k, &Problem::v, &Problem::o}) {
    (plain.*member).dtype = (p.*member).dtype;
  }
  if (p.lse == nullptr) plain.lse = nullptr;
  plain.lse_sum = p.lse_sum;
  plain.softmax_scale = p.softmax_scale;
  plain.mask = p.mask;
  Placed copy(plain, true);
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
  EXPECT_TRUE(drawn.results() == copy.results());
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
  return is_known_decline(status) || says(" gives no LSE ") ||
         (says(" serves no broadcast rows ") && broadcast_rows);
}

TEST(Hostile, AcceptedProblemsAreComputedWithoutAByteOutside) {
  if (!kSanitizer) std::signal(SIGSEGV, say_which);
  constexpr int kDraws = kSanitizer ? 600 : 3000;
  int run = 0;
  for (int i = 0; i < kDraws; ++i) {
    Draw draw(static_cast<std::uint64_t>(i));
    Problem p = draw.problem();
    if (!detail::check_problem(p).ok() || !is_small(p)) continue;
    g_draw = i;
    p.softmax_scale = 0.125F;
    std::vector<const Variant*> serving;
    for (const Variant& variant : variants()) {
      const Status status = variant.supports(p, host_executor());
      if (status.ok()) serving.push_back(&variant);
      EXPECT_TRUE(status.ok() || may_decline(status, p)) << i << ": " << status.message();
    }
    if (!serving.empty()) {
      const Variant& variant = *serving[draw.number() % serving.size()];
      SCOPED_TRACE(testing::Message() << "draw " << i << ": " << variant.name);
      expect_as_a_copy(p, variant, draw);
      ++run;
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(run, kDraws / 20);
  if (!kSanitizer) std::signal(SIGSEGV, SIG_DFL);
}

}  // namespace
}  // namespace fp8_sdpa::tests
