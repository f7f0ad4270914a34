// Appending to a cache: every byte of both caches is compared with what the reference's own
// arithmetic writes there, on both backends.
#include "fp8_sdpa/append.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/oracle/memory.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

enum class Layout { kTokenMajor, kHeadMajor, kHalves };

struct AppendCase {
  int tokens = 11, heads = 3, head_dim = 64;
  int pages = 4, page_size = 16;
  Dtype from = Dtype::kBFloat16, to = Dtype::kE4M3;
  Layout layout = Layout::kTokenMajor;
  int rotary_dim = 0;  ///< 0: none
  bool asks_for_faults = true;
  bool interleaved = false;
  std::uint64_t seed = 1;
};

constexpr std::int64_t kMaxPositions = 40;

/// The memory of one append, and what should be in it afterwards.
class Appended {
 public:
  Appended(const AppendCase& c, const Device& device) : case_(c), device_(device), random_(c.seed) {
    for (auto* values : {&k_, &v_}) {
      values->resize(size(c.tokens * c.heads * c.head_dim));
      std::normal_distribution<float> normal(0.0F, 3.0F);
      for (float& x : *values) x = as_held(normal(random_));
    }
    std::vector<std::int64_t> all(size(c.pages * c.page_size));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    slots.assign(all.begin(), all.begin() + c.tokens);
    for (int i = 0; i < c.tokens; ++i) {
      positions.push_back(static_cast<std::int64_t>(random_() % kMaxPositions));
    }
    for (int i = 0; i < kMaxPositions * c.rotary_dim; ++i) {
      const int half = c.rotary_dim / 2;
      const double angle = (i / c.rotary_dim) * std::pow(10'000.0, -(i % half) / double(half));
      cos_sin_.push_back(
          static_cast<float>(i % c.rotary_dim < half ? std::cos(angle) : std::sin(angle)));
    }
    for (int head = 0; head < 2 * c.heads; ++head) {
      descales_.push_back(0.01F + 0.003F * static_cast<float>(head));
    }
  }

  /// Of a token's head, before run(): the value nearest to x that the inputs' format has.
  void set_k(int token, int head, int dim, float x) { k_[index(token, head, dim)] = as_held(x); }
  void set_v(int token, int head, int dim, float x) { v_[index(token, head, dim)] = as_held(x); }
  std::vector<std::int64_t> slots, positions;

  /// Appends, and compares.
  void expect_right() {
    Append a = upload();
    const auto made = plan(a, device_);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const Status status = append(*made, nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(reference::synchronise(device_).ok());
    std::vector<std::uint8_t> got(cache_->size());
    ASSERT_TRUE(cache_->download(got.data()).ok());
    const std::vector<std::uint8_t> want = expected(a);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], want[i]) << "byte " << i << " of " << got.size() << ", values of "
                                 << name_of(case_.from) << " to " << name_of(case_.to);
    }
    for (const auto& buffer : buffers_) {
      const auto changed = buffer->changed_guard_bytes();
      ASSERT_TRUE(changed.ok());
      EXPECT_EQ(*changed, 0) << buffer->name();
    }
  }
  std::uint32_t fault() const {
    std::uint32_t word = 7;
    EXPECT_TRUE(fault_->download(&word).ok());
    return word;
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  std::size_t index(int token, int head, int dim) const {
    return size((token * case_.heads + head) * case_.head_dim + dim);
  }
  float as_held(float x) const {
    if (case_.from == Dtype::kFloat) return x;
    return reference::decode_16(reference::encode_16(x, case_.from), case_.from);
  }

  reference::Buffer* add(const void* bytes, std::size_t count, const char* name) {
    auto made = reference::allocate(device_, count, name);
    EXPECT_TRUE(made.ok()) << made.status().message();
    buffers_.push_back(std::move(*made));
    EXPECT_TRUE(
        (bytes != nullptr ? buffers_.back()->upload(bytes) : buffers_.back()->poison()).ok());
    return buffers_.back().get();
  }
  template <class T>
  const T* add_all(const std::vector<T>& values, const char* name) {
    return static_cast<const T*>(add(values.data(), values.size() * sizeof(T), name)->data());
  }

  /// K and V of a token side by side, as a projection writes them; and caches of one allocation.
  Append upload() {
    const AppendCase& c = case_;
    const std::int64_t row = c.head_dim;
    const int bytes = size_of(c.from);
    std::vector<std::uint8_t> memory(size(c.tokens * 2 * c.heads * row * bytes));
    for (int token = 0; token < c.tokens; ++token) {
      for (int i = 0; i < 2 * c.heads * c.head_dim; ++i) {
        const int of_k = c.heads * c.head_dim;
        const float x = i < of_k ? k_[size(token * of_k + i)] : v_[size(token * of_k + i - of_k)];
        std::uint8_t* const to = &memory[size((token * 2 * of_k + i) * bytes)];
        const std::uint16_t bits = bytes == 2 ? reference::encode_16(x, c.from) : 0;
        std::memcpy(to, bytes == 2 ? static_cast<const void*>(&bits) : &x, size(bytes));
      }
    }
    Append a;
    a.tokens = c.tokens;
    a.heads = c.heads;
    a.head_dim = c.head_dim;
    auto* const from = static_cast<std::uint8_t*>(add(memory.data(), memory.size(), "new")->data());
    a.k = {from, c.from, 0, row, 2 * c.heads * row, 1};
    a.v = a.k;
    a.v.data = from + c.heads * row * bytes;

    const std::int64_t page = c.page_size * c.heads * row;
    cache_ = add(nullptr, size(2 * c.pages * page), "caches");
    auto* const to = static_cast<std::uint8_t*>(cache_->data());
    const bool by_token = c.layout != Layout::kHeadMajor;
    const bool halves = c.layout == Layout::kHalves;
    a.k_cache = {to,
                 c.to,
                 halves ? 2 * page : page,
                 by_token ? row : c.page_size * row,
                 by_token ? c.heads * row : row,
                 1};
    a.v_cache = a.k_cache;
    a.v_cache.data = to + (halves ? page : c.pages * page);
    a.pages = c.pages;
    a.page_size = c.page_size;
    a.slots = add_all(slots, "slots");
    a.descale_k = add_all(descales_, "descales");
    a.descale_v = a.descale_k + c.heads;
    if (c.rotary_dim > 0) {
      a.rotary = {.cos_sin = add_all(cos_sin_, "cos_sin"),
                  .positions = add_all(positions, "positions"),
                  .max_positions = kMaxPositions,
                  .dim = c.rotary_dim,
                  .interleaved = c.interleaved};
    }
    const std::uint32_t zero = 0;
    fault_ = add(&zero, sizeof zero, "fault");
    if (c.asks_for_faults) a.fault = static_cast<std::uint32_t*>(fault_->data());
    return a;
  }

  /// Column `dim` of the turned row.
  float turned(int token, int head, int dim) const {
    const AppendCase& c = case_;
    const float x = k_[index(token, head, dim)];
    if (dim >= c.rotary_dim) return x;
    const int half = c.rotary_dim / 2;
    const bool first = c.interleaved ? dim % 2 == 0 : dim < half;
    const int pair = c.interleaved ? dim / 2 : dim % half;
    const int step = c.interleaved ? 1 : half;
    const float other = k_[index(token, head, first ? dim + step : dim - step)];
    const float* const angles = &cos_sin_[size(positions[size(token)] * c.rotary_dim)];
    const float product = other * angles[half + pair];
    return std::fma(x, angles[pair], first ? -product : product);
  }

  std::vector<std::uint8_t> expected(const Append& a) const {
    const AppendCase& c = case_;
    std::vector<std::uint8_t> memory(cache_->size(), 0xFF);
    const auto* const begin = static_cast<const std::uint8_t*>(cache_->data());
    for (int token = 0; token < c.tokens; ++token) {
      const std::int64_t slot = slots[size(token)];
      if (slot < 0 || slot >= c.pages * c.page_size) continue;
      const std::int64_t position = positions[size(token)];
      if (c.rotary_dim > 0 && (position < 0 || position >= kMaxPositions)) continue;
      for (int head = 0; head < c.heads; ++head) {
        for (int dim = 0; dim < c.head_dim; ++dim) {
          for (const bool is_k : {true, false}) {
            const Tensor& cache = is_k ? a.k_cache : a.v_cache;
            const float x = is_k ? turned(token, head, dim) : v_[index(token, head, dim)];
            const float descale = descales_[size(is_k ? head : c.heads + head)];
            const std::int64_t at = slot / c.page_size * cache.stride_batch +
                                    head * cache.stride_head +
                                    slot % c.page_size * cache.stride_seq + dim;
            const std::ptrdiff_t base = static_cast<const std::uint8_t*>(cache.data) - begin;
            memory[size(base + at)] = reference::encode_code(x * (1.0F / descale), c.to);
          }
        }
      }
    }
    return memory;
  }

  AppendCase case_;
  Device device_;
  std::mt19937_64 random_;
  std::vector<float> k_, v_, cos_sin_, descales_;
  std::vector<std::unique_ptr<reference::Buffer>> buffers_;
  reference::Buffer *cache_ = nullptr, *fault_ = nullptr;
};

class QuantisedAppend : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }
  Device device_;
  bool ready_ = false;
};

// Sizes of every kind, each format and layout, by turns; a head more than a block's threads take.
TEST_P(QuantisedAppend, WritesWhatTheSlotsSay) {
  if (!ready_) return;
  int turn = 0;
  for (const int head_dim : {16, 64, 128, 256}) {
    for (const int page_size : {1, 5, 16}) {
      for (const Dtype from : {Dtype::kBFloat16, Dtype::kHalf, Dtype::kFloat}) {
        const AppendCase c{.heads = 1 + turn % 6,
                           .head_dim = head_dim,
                           .pages = 30 / page_size + 1,
                           .page_size = page_size,
                           .from = from,
                           .to = turn % 2 == 0 ? Dtype::kE4M3 : Dtype::kE5M2,
                           .layout = static_cast<Layout>(turn % 3),
                           .seed = static_cast<std::uint64_t>(turn)};
        Appended appended(c, device_);
        appended.expect_right();
        EXPECT_EQ(appended.fault(), 0U);
        if (HasFailure()) return;
        ++turn;
      }
    }
  }
}

TEST_P(QuantisedAppend, TurnsPairsOfColumns) {
  if (!ready_) return;
  for (const auto& [head_dim, rotary_dim] : {std::pair{64, 64}, {64, 16}, {128, 64}, {256, 256}}) {
    for (const bool interleaved : {false, true}) {
      for (const Dtype from : {Dtype::kBFloat16, Dtype::kHalf, Dtype::kFloat}) {
        Appended appended({.head_dim = head_dim,
                           .from = from,
                           .rotary_dim = rotary_dim,
                           .interleaved = interleaved,
                           .seed = 3},
                          device_);
        appended.expect_right();
        if (HasFailure()) return;
      }
    }
  }
}

// One NaN of each sign, infinities, and values beyond the largest code.
TEST_P(QuantisedAppend, KeepsNanAndSaturates) {
  if (!ready_) return;
  for (const Dtype to : {Dtype::kE4M3, Dtype::kE5M2}) {
    Appended appended({.from = Dtype::kHalf, .to = to}, device_);
    appended.set_k(2, 1, 5, std::numeric_limits<float>::quiet_NaN());
    appended.set_v(3, 2, 63, std::numeric_limits<float>::quiet_NaN());
    appended.set_k(4, 0, 0, INFINITY);
    appended.set_v(5, 0, 8, -INFINITY);
    appended.set_k(6, 2, 17, 60'000.0F);
    appended.set_v(7, 1, 31, -60'000.0F);
    appended.expect_right();
  }
}

// Some tokens have no slot, of others it is not in the cache or the position not in the table:
// these alone are not written, and those that should have been are told of.
TEST_P(QuantisedAppend, WritesNothingWhereThereIsNoSlot) {
  if (!ready_) return;
  const auto appended = [&] {
    return std::make_unique<Appended>(AppendCase{.rotary_dim = 32}, device_);
  };
  auto padded = appended();
  padded->slots[3] = -1;
  padded->slots[5] = std::numeric_limits<std::int64_t>::min();
  padded->positions[3] = -1;  // not looked at
  padded->expect_right();
  EXPECT_EQ(padded->fault(), 0U);
  for (const std::int64_t slot :
       {std::int64_t{64}, std::int64_t{1} << 32, std::numeric_limits<std::int64_t>::max()}) {
    auto outside = appended();
    outside->slots[0] = slot;
    outside->expect_right();
    EXPECT_EQ(outside->fault(), 1U) << slot;
  }
  Appended unasked({.asks_for_faults = false}, device_);
  unasked.slots[1] = 64;
  unasked.expect_right();
  EXPECT_EQ(unasked.fault(), 0U);
  for (const std::int64_t position : {std::int64_t{-1}, kMaxPositions, std::int64_t{1} << 40}) {
    auto outside = appended();
    outside->positions[10] = position;
    outside->expect_right();
    EXPECT_EQ(outside->fault(), 1U) << position;
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, QuantisedAppend, testing::Values(Backend::kHost, Backend::kDevice),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace fp8_sdpa::tests
