// A problem whose every tensor and array lies beside a page that may not be touched.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "fp8_sdpa/plan.hpp"
#include "tests/host/kernels/header_words.hpp"

namespace fp8_sdpa::tests {

/// Memory whose last byte (or first) is beside a page that may not be touched.
class GuardedMemory {
 public:
  GuardedMemory(std::size_t size, std::size_t alignment, bool at_end) {
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
  ~GuardedMemory() {
    if (all_ != nullptr) munmap(all_, length_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  std::uint8_t* data() const { return data_; }

 private:
  std::size_t length_ = 0;
  std::uint8_t* all_ = nullptr;
  std::uint8_t* data_ = nullptr;
};

/// What the arrays of a ragged batch say, by their pointers' numbers.
using WordsOf = std::map<int, std::vector<std::int32_t>>;

/// A problem in memory of its own: 0xFF bytes, NaN in every format, and its elements among them.
class Placed {
 public:
  Placed(const Problem& p, const WordsOf& words, bool at_end) : problem_(p), at_end_(at_end) {
    for (int i = 0; i < kPointers; ++i) {
      if (address(p, i) == 0) continue;
      move_to(problem_, i, add(bytes_of(p, i).size(), i <= kOutput ? 16 : 4));
    }
    for (int i = kLse + 1; i < kFault; ++i) {
      auto* const floats = reinterpret_cast<float*>(address(problem_, i));
      for (int j = 0; j < words_of(problem_, i); ++j) {
        floats[j] = 0.5F + static_cast<float>(j) / 8.0F;
      }
    }
    if (problem_.fault != nullptr) *problem_.fault = 0;
    for (const auto& [pointer, array] : words) {
      std::copy(array.begin(), array.end(),
                reinterpret_cast<std::int32_t*>(address(problem_, pointer)));
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
  /// O in the order of its axes, LSE and fault; every other byte of O's is as it was.
  std::vector<std::uint32_t> results() const {
    std::vector<std::uint32_t> all;
    const auto* const halves = static_cast<const std::uint16_t*>(problem_.o.data);
    std::vector<bool> is_element(bytes_of(problem_, kOutput).size() / 2);
    for_each_element(views_of(problem_)[kOutput], [&](std::int64_t at) {
      all.push_back(halves[at]);
      is_element[static_cast<std::size_t>(at)] = true;
    });
    for (std::size_t i = 0; i < is_element.size(); ++i) {
      EXPECT_TRUE(is_element[i] || halves[i] == 0xFFFF) << "written between rows of O";
    }
    for (const int written : {kLse, kFault}) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(address(problem_, written));
      if (words != nullptr) all.insert(all.end(), words, words + words_of(problem_, written));
    }
    return all;
  }

 private:
  std::uintptr_t add(std::size_t size, std::size_t alignment) {
    memory_.push_back(std::make_unique<GuardedMemory>(size, alignment, at_end_));
    return reinterpret_cast<std::uintptr_t>(memory_.back()->data());
  }
  Problem problem_;
  bool at_end_;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
};

}  // namespace fp8_sdpa::tests
