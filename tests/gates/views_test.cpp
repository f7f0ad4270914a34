// Views that a problem may have and a contiguous tensor has not: strides that are not used, and
// memory that several heads, batches or rows share.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/judge/harness.hpp"
#include "reference/oracle/case.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

class Views : public VariantTest {};

/// Axes of size 1 get a stride that no used one may have.
void spoil_unused(Problem& p, std::int64_t stride) {
  const auto spoil = [&](Tensor& t, int heads, std::int64_t seq) {
    if (p.batch == 1) t.stride_batch = stride;
    if (heads == 1) t.stride_head = stride;
    if (seq == 1) t.stride_seq = stride;
  };
  spoil(p.q, p.heads_q, p.seq_q);
  spoil(p.k, p.heads_kv, p.seq_kv);
  spoil(p.v, p.heads_kv, p.seq_kv);
  spoil(p.o, p.heads_q, p.seq_q);
}

TEST_P(Views, StridesOfAxesOfSizeOneAreNotLookedAt) {
  if (!ready_) return;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t stride :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 41, kMost}) {
    reference::CheckOptions options;
    options.rerun = false;
    options.edit = [stride](Problem& p) { spoil_unused(p, stride); };
    for (const auto& [batch, heads, seq_q, seq_kv] :
         {std::tuple{1, 1, 1, 1}, {2, 2, 3, 1}, {2, 1, 1, 140}, {1, 2, 3, 140}}) {
      for (const int head_dim : head_dims()) {
        const auto shape = make_shape(batch, heads, seq_q, seq_kv, head_dim);
        SCOPED_TRACE(shape.name + ", unused strides of " + std::to_string(stride));
        expect_pass_or_known_decline(variant(), shape, 91, device_, options);
      }
    }
  }
}

/// Every head holds the first one's codes, with descales of its own.
void repeat_first_head(reference::QuantisedTensor& tensor) {
  const std::size_t head = tensor.codes.size() / tensor.descales.size();
  for (std::size_t i = head; i < tensor.codes.size(); ++i) tensor.codes[i] = tensor.codes[i - head];
}

// One head seen as those of all heads, or batches, or both gives what a copy for each gives.
TEST_P(Views, BroadcastsGiveWhatCopiesGive) {
  if (!ready_) return;
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(2, 2, 20, keys(72), head_dim);
    reference::CheckOptions options;
    options.rerun = false;
    options.budgets_only = true;
    options.padded = true;
    if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
    reference::CaseData copies = *case_data(shape, 92, codes());
    for (auto* tensor : {&copies.q, &copies.k, &copies.v}) repeat_first_head(*tensor);
    const auto data = reference::from_codes(std::move(copies));
    // Each map has steps of its own: what one tensor walks in, another does not.
    for (int step = 0; step < 4; ++step) {
      options.edit = [step](Problem& p) {
        int axes = step;
        for (Tensor* tensor : {&p.q, &p.k, &p.v}) {
          if ((axes & 1) != 0) tensor->stride_head = 0;
          if ((axes & 2) != 0) tensor->stride_batch = 0;
          axes = (axes + 1) % 4;
        }
      };
      SCOPED_TRACE(testing::Message() << "broadcast " << step << ", head_dim " << head_dim);
      expect_pass(variant(), *data, device_, options);
    }
  }
}

/// Codes whose rows begin 16 codes after each other, and a tensor that has them in full rows.
std::vector<std::uint8_t> overlap_rows(reference::QuantisedTensor& tensor, std::size_t head_dim) {
  constexpr std::size_t kStep = 16;
  const std::size_t rows = tensor.codes.size() / head_dim;
  std::vector<std::uint8_t> window(tensor.codes.begin(),
                                   tensor.codes.begin() + (rows - 1) * kStep + head_dim);
  for (std::size_t i = 0; i < tensor.codes.size(); ++i) {
    tensor.codes[i] = window[i / head_dim * kStep + i % head_dim];
  }
  return window;
}

// Rows that share memory with the next, as a sliding window over a signal has them.
TEST_P(Views, RowsMayOverlap) {
  if (!ready_ || device_.backend != Backend::kHost) return;  // it is seen in memory of the test
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(1, 1, 20, keys(72), head_dim);
    reference::CheckOptions options;
    options.rerun = false;
    options.budgets_only = true;
    if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
    reference::CaseData rows = *case_data(shape, 93, codes());
    std::array<std::vector<std::uint8_t>, 3> windows;
    std::size_t next = 0;
    for (auto* tensor : {&rows.q, &rows.k, &rows.v}) {
      windows[next++] = overlap_rows(*tensor, static_cast<std::size_t>(head_dim));
    }
    if (variant().int8) {
      reference::QuantisedTensor v = rows.v;
      v.codes = windows[2];
      windows[2] = reference::value_bytes(v, variant().weights);
    }
    const auto data = reference::from_codes(std::move(rows));
    options.edit = [&windows](Problem& p) {
      std::size_t which = 0;
      for (Tensor* tensor : {&p.q, &p.k, &p.v}) {
        tensor->data = windows[which++].data();
        tensor->stride_seq = 16;
      }
    };
    SCOPED_TRACE(testing::Message() << "head_dim " << head_dim);
    expect_pass(variant(), *data, device_, options);
  }
}

/// Addresses, of which those that are written to have memory.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() {
    if (ok()) munmap(data_, bytes_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// An offset of 32 bits would bring the second head's rows to the first one's.
TEST_P(Views, HeadsMayBeFourGigabytesApart) {
  if (!ready_ || device_.backend != Backend::kHost) return;  // it is seen in memory of the test
  constexpr std::size_t kApart = (std::size_t{1} << 32) + 4096;
  constexpr std::size_t kMostBytesOfHead = std::size_t{1} << 20;
  for (const int head_dim : head_dims()) {
    const reference::Shape shape = make_shape(1, 2, 20, keys(72), head_dim);
    reference::CheckOptions options;
    options.rerun = false;
    options.budgets_only = true;
    if (!serves_or_known_decline(variant(), shape, device_, options)) continue;
    reference::CaseData codes_of = *case_data(shape, 94, codes());
    const Reserved k(kApart + kMostBytesOfHead);
    const Reserved v(kApart + kMostBytesOfHead);
    ASSERT_TRUE(k.ok() && v.ok());
    const auto spread = [&](const std::vector<std::uint8_t>& bytes, const Reserved& to) {
      const std::size_t head = bytes.size() / 2;
      ASSERT_LE(head, kMostBytesOfHead);
      std::memcpy(to.data(), bytes.data(), head);
      std::memcpy(to.data() + kApart, bytes.data() + head, head);
    };
    spread(codes_of.k.codes, k);
    spread(
        variant().int8 ? reference::value_bytes(codes_of.v, variant().weights) : codes_of.v.codes,
        v);
    const auto data = reference::from_codes(std::move(codes_of));
    options.edit = [&](Problem& p) {
      p.k.data = k.data();
      p.v.data = v.data();
      for (Tensor* tensor : {&p.k, &p.v}) {
        tensor->stride_head = static_cast<std::int64_t>(kApart) / size_of(tensor->dtype);
      }
    };
    SCOPED_TRACE(testing::Message() << "head_dim " << head_dim);
    expect_pass(variant(), *data, device_, options);
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Views,
                         testing::Combine(testing::ValuesIn(kBackends),
                                          testing::ValuesIn(all_variants())),
                         name_of_parameter);

}  // namespace
}  // namespace fp8_sdpa::tests
