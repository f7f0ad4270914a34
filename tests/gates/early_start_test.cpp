// Kernels that start before earlier ones have ended (gpu/dependent_launch.hpp): what those write
// must not be read, and what they read must not be written, before they have been waited for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/executor_options.hpp"
#include "reference/judge/harness.hpp"
#include "tests/gates/gate_cases.hpp"
#include "tests/hidden_inputs.hpp"

namespace fp8_sdpa::tests {
namespace {

/// A case in memory of its own, where an earlier kernel has yet to write the inputs.
class Awaited {
 public:
  Awaited(const reference::CaseData& data, const Variant& variant)
      : data_(data),
        values_(variant.int8 ? variant.weights : data.dtype),
        inputs_{{data.q.codes, data.q.descales},
                {data.k.codes, data.k.descales},
                {reference::value_bytes(data.v, values_), data.v.descales}},
        o_(data.q.codes.size()),
        lse_(o_.size() / static_cast<std::size_t>(data.shape.head_dim)),
        hidden_(problem(LseSum::kDenominator)) {
    poison(o_);
    poison(lse_);
  }

  Problem problem(LseSum lse_sum) {
    const reference::Shape& shape = data_.shape;
    const reference::Extent q{shape.batch, shape.heads_q, shape.seq_q, shape.head_dim};
    const reference::Extent kv{shape.batch, shape.heads_kv, shape.seq_kv, shape.head_dim};
    Problem p;
    p.batch = shape.batch;
    p.heads_q = shape.heads_q;
    p.heads_kv = shape.heads_kv;
    p.seq_q = shape.seq_q;
    p.seq_kv = shape.seq_kv;
    p.head_dim = shape.head_dim;
    p.q = q.view(inputs_[0].codes.data(), data_.dtype);
    p.k = kv.view(inputs_[1].codes.data(), data_.dtype);
    p.v = kv.view(inputs_[2].codes.data(), values_);
    p.o = q.view(o_.data(), Dtype::kHalf);
    p.lse = lse_.data();
    p.lse_sum = lse_sum;
    p.descales = {inputs_[0].descales.data(), inputs_[1].descales.data(),
                  inputs_[2].descales.data()};
    p.softmax_scale = data_.softmax_scale;
    p.mask = shape.mask;
    return p;
  }

  /// The earlier kernel, which also sees what has been done before its time.
  void write_inputs(const std::vector<std::byte>& workspace) {
    ++runs;
    written_too_early = !is_poison(o_) || !is_poison(lse_) || !is_poison(workspace);
    hidden_.show();
  }
  /// Inputs of NaN, to be shown again; nothing has been written.
  void hide() {
    hidden_ = HiddenInputs(problem(LseSum::kDenominator));
    poison(o_);
    poison(lse_);
  }
  void show() { hidden_.show(); }
  const std::vector<std::uint16_t>& o() const { return o_; }
  const std::vector<float>& lse() const { return lse_; }

  int runs = 0;
  bool written_too_early = false;

 private:
  struct Input {
    std::vector<std::uint8_t> codes;
    std::vector<float> descales;
  };
  static constexpr int kPoison = 0xFF;  // NaN in every format

  template <class T>
  static void poison(std::vector<T>& memory) {
    std::memset(memory.data(), kPoison, memory.size() * sizeof(T));
  }
  template <class T>
  static bool is_poison(const std::vector<T>& memory) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(memory.data());
    return std::all_of(bytes, bytes + memory.size() * sizeof(T),
                       [](unsigned char byte) { return byte == kPoison; });
  }

  const reference::CaseData& data_;
  Dtype values_;  ///< V's
  Input inputs_[3];
  std::vector<std::uint16_t> o_;
  std::vector<float> lse_;
  HiddenInputs hidden_;
};

class EarlyStart : public testing::TestWithParam<const Variant*> {
 protected:
  /// Of `shape`, once for each kernel that the variant has for it.
  void expect_patience(const reference::Shape& shape) {
    const bool two = GetParam()->has_kernel_of_exact_sums(shape.head_dim);
    expect_patience(shape, LseSum::kDenominator);
    if (two) expect_patience(shape, LseSum::kExact);
  }

 private:
  void expect_patience(const reference::Shape& shape, LseSum lse_sum) {
    Device device;
    if (!use_backend(Backend::kHost, &device)) return;
    const Variant& variant = *GetParam();
    const auto data = case_data(shape, 91, GetParam()->codes());
    Awaited awaited(*data, variant);
    reference::CheckOptions options;
    options.lse_sum = lse_sum;
    const Status served = variant.supports(awaited.problem(lse_sum), device);
    if (!served.ok()) {
      EXPECT_TRUE(is_known_decline(served)) << served.message();
      return;
    }
    const auto expected = reference::run_variant(variant, *data, device, options);
    ASSERT_TRUE(expected.ok()) << expected.status().message();

    std::vector<std::byte> workspace;
    std::function<void()> earlier = [&] { awaited.write_inputs(workspace); };
    device.executor = std::make_shared<const ExecutorOptions>(
        ExecutorOptions{.earlier_kernels = [&] { earlier(); }});
    const Result<Plan> planned = plan(awaited.problem(lse_sum), device, &variant);
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    workspace.assign(planned->workspace_bytes(), std::byte{0xFF});
    const Status status = forward(*planned, workspace.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(awaited.runs, 1);
    EXPECT_FALSE(awaited.written_too_early);
    expect_equal(awaited, *expected);

    // A launch with other inputs leaves nothing in the workspace that the next one takes for its
    // own.
    earlier = [] {};
    awaited.hide();
    ASSERT_TRUE(forward(*planned, workspace.data(), nullptr).ok());
    awaited.show();
    ASSERT_TRUE(forward(*planned, workspace.data(), nullptr).ok());
    expect_equal(awaited, *expected);
    const std::vector<std::byte> left = workspace;
    ASSERT_TRUE(forward(*planned, workspace.data(), nullptr).ok());
    EXPECT_EQ(workspace, left) << "counts of one launch are left to the next";
  }

  static void expect_equal(const Awaited& seen, const reference::RunOutput& expected) {
    EXPECT_EQ(seen.o(), expected.o);
    EXPECT_EQ(seen.lse(), expected.lse);
  }
};

TEST_P(EarlyStart, OneTileWaitsForItsInputs) { expect_patience(make_shape(1, 1, 45, 77)); }

// Blocks that stay for several tiles, some of which they share.
TEST_P(EarlyStart, PersistentBlocksWaitForTheirInputs) {
  if (GetParam()->family != Family::kSm90) return;
  for (const int head_dim : {64, 128, 256}) expect_patience(make_shape(1, 3, 300, 300, head_dim));
}

INSTANTIATE_TEST_SUITE_P(Gates, EarlyStart, testing::ValuesIn(all_variants()),
                         [](const testing::TestParamInfo<const Variant*>& info) {
                           return std::string(info.param->name);
                         });

}  // namespace
}  // namespace fp8_sdpa::tests
