// Problems whose sizes, strides, alignment and overlap are at the boundaries of what problem.hpp
// calls legal, on both sides of them.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <vector>

#include "tests/host/kernels/header_words.hpp"

namespace fp8_sdpa::tests {

/// Legal problems in odd layouts, whole, packed or in pages, and the same with up to three fields
/// at a boundary.
class HostileDraw {
 public:
  explicit HostileDraw(std::uint64_t index, bool of_sequences = false) : random_(index) {
    p_ = made_up(pick({1, 1, 2, 3}), 1, pick({1, 1, 2, 3}), pick({1, 1, 2, 3, 5, 17, 33, 130}),
                 pick({1, 1, 2, 3, 5, 16, 17, 33, 129, 140}),
                 pick({64, 64, 64, 64, 128, 256, 1, 33}));
    if (of_sequences && one_in(2)) p_.seq_kv = pick({65, 96, 129, 200});  // tiles of keys
    p_.heads_q = p_.heads_kv * pick({1, 1, 1, 2, 3});
    p_.mask = one_in(4) ? Mask::kCausal : Mask::kNone;
    p_.softmax_scale = pick({0.0F, 0.125F, FLT_MIN, FLT_MAX});
    const Dtype input = pick({Dtype::kE4M3, Dtype::kE4M3, Dtype::kE4M3, Dtype::kE5M2});
    for (Tensor* t : {&p_.q, &p_.k, &p_.v}) t->dtype = input;
    p_.o.dtype = pick({Dtype::kHalf, Dtype::kBFloat16});
    if (one_in(4)) p_.v.stride_dim = 0;  // transposed
    if (of_sequences || one_in(3)) draw_sequences();
    for (int i = 0; i < 4; ++i) lay_out(i);
    if (one_in(4)) p_.lse = nullptr;
    place();
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

  /// Packed, of different lengths or in pages, and a word for faults.
  void draw_sequences() {
    const std::int64_t spare = pick({0, 0, 1, 7});
    if (one_in(2)) {
      give(kOffsetsQ);
      p_.ragged.total_q = pick({0 * p_.seq_q, 1 * p_.seq_q, p_.batch * p_.seq_q}) + spare;
    }
    const int keys = pick({0, 1, 1, 2, 2});
    if (keys == 1) {
      give(kOffsetsKv);
      p_.ragged.total_kv = pick({0 * p_.seq_kv, 1 * p_.seq_kv, p_.batch * p_.seq_kv}) + spare;
    }
    if (keys == 2) {
      give(kTable);
      p_.pages.page_size = pick({1, 4, 8, 16, 16, 24, 32, 64, 128, 256});
      p_.pages.max_pages =
          static_cast<int>((p_.seq_kv + p_.pages.page_size - 1) / p_.pages.page_size + spare);
      p_.pages.pages = pick({1, 2, 5, 40});
    }
    if (keys != 1 && one_in(2)) give(kLengths);
    if (one_in(2)) give(kFault);
  }
  void give(int pointer) { move_to(p_, pointer, (std::uintptr_t{1} + pointer) << kApart); }

  /// Everything that is there, in any order; the last may be as long as it likes.
  void place() {
    std::vector<int> given;
    for (int i = 0; i < kPointers; ++i) {
      if (address(p_, i) != 0) given.push_back(i);
    }
    std::shuffle(given.begin(), given.end(), random_);
    std::uintptr_t to = 0;
    for (const int i : given) move_to(p_, i, to += std::uintptr_t{1} << kApart);
    move_to(p_, given.back(), std::uintptr_t{1} << 61);
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
    if (one_in(6)) return spoil_sequences();
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
        } else if (one_in(3)) {
          p_.lse_sum = static_cast<LseSum>(random_() % 4);
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

  void spoil_sequences() {
    Pages& pages = p_.pages;
    const int few = pick({0, -1, 1, 2, INT_MIN, INT_MAX, INT_MAX / 2});
    const std::int64_t rows =
        pick<std::int64_t>({-1, 0, 1, INT_MAX, std::int64_t{INT_MAX} + 1, INT64_MIN});
    switch (random_() % 9) {
      case 0: p_.ragged.total_q = rows; break;
      case 1: p_.ragged.total_kv = rows; break;
      case 2: pages.pages = few; break;
      case 3: pages.page_size = few; break;
      case 4: pages.max_pages = few; break;
      case 5:  // a page too few, or room for no key more than there are
        if (pages.page_size > 0) {
          p_.seq_kv = std::int64_t{pages.max_pages} * pages.page_size + pick({0, 1});
        }
        break;
      case 6:  // a table that no memory has room for
        p_.batch = INT_MAX;
        pages.max_pages = few;
        break;
      default: {
        const int pointer = kFault + static_cast<int>(random_() % (kPointers - kFault));
        if (address(p_, pointer) == 0) {
          give(pointer);
        } else {
          move_to(p_, pointer, 0);
        }
      }
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
    const int written = pick({kOutput, kOutput, kLse, kFault});
    const int other = static_cast<int>(random_() % kPointers);
    const bool first = one_in(2);
    const int moved = first ? written : other;
    const int stays = first ? other : written;
    if (other == written || address(p_, moved) == 0 || address(p_, stays) == 0) return;
    const std::uintptr_t by = pick<std::uintptr_t>({0, 0, 4, 16});
    const Bytes there = bytes_of(p_, stays);
    const Wide to = one_in(2) ? there.end - by : there.begin - bytes_of(p_, moved).size() + by;
    move_to(p_, moved, static_cast<std::uintptr_t>(to));
  }

  static constexpr int kApart = 50;
  std::mt19937_64 random_;
  Problem p_;
};

}  // namespace fp8_sdpa::tests
