// What only a GPU can show: streams that overlap, captured graphs that see new inputs and scales,
// tensors past 2^31 elements, more heads than a grid has rows. Without a GPU each test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fp8_sdpa/plan.hpp"
#include "tests/gates/gate_cases.hpp"
#include "tests/gates/subject.hpp"

#if FP8_SDPA_HAS_DEVICE
#include <cuda_runtime.h>
#endif

namespace fp8_sdpa::tests {
namespace {

class OnDevice : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override { ready_ = use_backend(Backend::kDevice, &device_); }
  const Variant& variant() const { return *GetParam().variant; }
  reference::Shape kernels_shape(int batch, int heads, std::int64_t seq_q, std::int64_t few) const {
    return make_shape(batch, heads, GetParam().rows(seq_q), GetParam().keys(few),
                      GetParam().head_dim);
  }

  bool ready_ = false;
  Device device_;
};

INSTANTIATE_TEST_SUITE_P(Gates, OnDevice, testing::ValuesIn(all_kernels()),
                         [](const testing::TestParamInfo<Kernel>& info) {
                           return "device_" + info.param.name;
                         });

TEST_P(OnDevice, ManyRerunsGiveTheSameBits) {
  if (!ready_) return;
  const auto data = codes_of(kernels_shape(2, 4, 200, 128), 61, GetParam().codes());
  reference::CheckOptions options;
  options.lse_sum = GetParam().lse_sum;
  const auto first = reference::run_variant(variant(), data, device_, options);
  ASSERT_TRUE(first.ok()) << first.status().message();
  constexpr int kReruns = 20;
  for (int i = 0; i < kReruns; ++i) {
    const auto again = reference::run_variant(variant(), data, device_, options);
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_TRUE(*again == *first) << "rerun " << i;
  }
}

#if FP8_SDPA_HAS_DEVICE

/// Device memory; empty where there is not enough.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : size_(size) {
    if (cudaMalloc(&data_, size) != cudaSuccess) {
      data_ = nullptr;
      static_cast<void>(cudaGetLastError());
    }
  }
  ~Bytes() { static_cast<void>(cudaFree(data_)); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool upload(const void* from, std::size_t at, std::size_t count) {
    return cudaMemcpy(static_cast<char*>(data_) + at, from, count, cudaMemcpyHostToDevice) ==
           cudaSuccess;
  }
  bool download(void* to, std::size_t at, std::size_t count) const {
    return cudaMemcpy(to, static_cast<const char*>(data_) + at, count, cudaMemcpyDeviceToHost) ==
           cudaSuccess;
  }
  /// Repeats the first `count` bytes to the end, doubling.
  bool repeat(std::size_t count) {
    for (std::size_t done = count; done < size_; done *= 2) {
      const std::size_t more = std::min(done, size_ - done);
      if (cudaMemcpy(static_cast<char*>(data_) + done, data_, more, cudaMemcpyDeviceToDevice) !=
          cudaSuccess) {
        return false;
      }
    }
    return true;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

/// A problem in device memory whose contents the test changes while the plan stays.
class Arena {
 public:
  Arena(const reference::Shape& shape, const Kernel& kernel)
      : shape_(shape),
        lse_sum_(kernel.lse_sum),
        codes_(kernel.codes()),
        values_(kernel.variant->int8 ? kernel.variant->weights : codes_),
        lse_(4 * heads(shape.heads_q) * static_cast<std::size_t>(shape.seq_q)),
        q_(elements(shape.heads_q, shape.seq_q)),
        k_(elements(shape.heads_kv, shape.seq_kv)),
        v_(static_cast<std::size_t>(size_of(values_)) * elements(shape.heads_kv, shape.seq_kv)),
        o_(2 * elements(shape.heads_q, shape.seq_q)),
        scales_{Bytes(4 * heads(shape.heads_q)), Bytes(4 * heads(shape.heads_kv)),
                Bytes(4 * heads(shape.heads_kv))} {}

  bool allocated() const {
    return q_.data() != nullptr && k_.data() != nullptr && v_.data() != nullptr &&
           o_.data() != nullptr && lse_.data() != nullptr && scales_[2].data() != nullptr;
  }
  Problem problem() const {
    const auto view = [&](void* data, Dtype dtype, int head_count, std::int64_t seq) {
      const std::int64_t dim = shape_.head_dim;
      return Tensor{data, dtype, head_count * seq * dim, seq * dim, dim, 1};
    };
    Problem p;
    p.batch = shape_.batch;
    p.heads_q = shape_.heads_q;
    p.heads_kv = shape_.heads_kv;
    p.seq_q = shape_.seq_q;
    p.seq_kv = shape_.seq_kv;
    p.head_dim = shape_.head_dim;
    p.q = view(q_.data(), codes_, shape_.heads_q, shape_.seq_q);
    p.k = view(k_.data(), codes_, shape_.heads_kv, shape_.seq_kv);
    p.v = view(v_.data(), values_, shape_.heads_kv, shape_.seq_kv);
    p.o = view(o_.data(), Dtype::kHalf, shape_.heads_q, shape_.seq_q);
    p.descales = {static_cast<const float*>(scales_[0].data()),
                  static_cast<const float*>(scales_[1].data()),
                  static_cast<const float*>(scales_[2].data())};
    p.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
    p.lse = static_cast<float*>(lse_.data());
    p.lse_sum = lse_sum_;
    return p;
  }
  bool fill(const reference::CaseData& data) {
    return q_.upload(data.q.codes.data(), 0, q_.size()) &&
           k_.upload(data.k.codes.data(), 0, k_.size()) &&
           v_.upload(reference::value_bytes(data.v, values_).data(), 0, v_.size()) &&
           scales_[0].upload(data.q.descales.data(), 0, scales_[0].size()) &&
           scales_[1].upload(data.k.descales.data(), 0, scales_[1].size()) &&
           scales_[2].upload(data.v.descales.data(), 0, scales_[2].size());
  }
  /// Every head is `common`'s one head, the last one is `last`'s.
  bool fill_heads(const reference::CaseData& common, const reference::CaseData& last) {
    const auto put = [](Bytes& to, const auto& head, const auto& tail) {
      const std::size_t size = head.size() * sizeof(head[0]);
      return to.upload(head.data(), 0, size) && to.repeat(size) &&
             to.upload(tail.data(), to.size() - size, size);
    };
    return put(q_, common.q.codes, last.q.codes) && put(k_, common.k.codes, last.k.codes) &&
           put(v_, reference::value_bytes(common.v, values_),
               reference::value_bytes(last.v, values_)) &&
           put(scales_[0], common.q.descales, last.q.descales) &&
           put(scales_[1], common.k.descales, last.k.descales) &&
           put(scales_[2], common.v.descales, last.v.descales);
  }
  std::vector<std::uint16_t> output() const {
    std::vector<std::uint16_t> bits(o_.size() / 2);
    EXPECT_TRUE(o_.download(bits.data(), 0, o_.size()));
    return bits;
  }
  /// Elements of one head of O, starting at head `first`.
  bool download_heads(std::size_t first, std::vector<std::uint16_t>& to) const {
    const std::size_t head = static_cast<std::size_t>(shape_.seq_q * shape_.head_dim);
    return o_.download(to.data(), 2 * first * head, 2 * to.size());
  }
  /// Done when it returns: streams that do not wait for the default one may write next.
  void poison() const {
    EXPECT_EQ(cudaMemset(o_.data(), 0xFF, o_.size()), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

 private:
  std::size_t heads(int count) const {
    return static_cast<std::size_t>(shape_.batch) * static_cast<std::size_t>(count);
  }
  std::size_t elements(int count, std::int64_t seq) const {
    return heads(count) * static_cast<std::size_t>(seq * shape_.head_dim);
  }

  reference::Shape shape_;
  LseSum lse_sum_;
  Dtype codes_, values_;  ///< of Q and K, and of V
  Bytes lse_;
  Bytes q_, k_, v_, o_;
  std::array<Bytes, 3> scales_;
};

std::vector<std::uint16_t> output_alone(const Kernel& kernel, const reference::CaseData& data,
                                        const Device& device, const PlanOptions& plan = {}) {
  reference::CheckOptions options;
  options.plan = plan;
  options.lse_sum = kernel.lse_sum;
  const auto run = reference::run_variant(*kernel.variant, data, device, options);
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() ? run->o : std::vector<std::uint16_t>{};
}

TEST_P(OnDevice, TwoStreamsAtOnceDoNotDisturbEachOther) {
  if (!ready_) return;
  const reference::Shape shape = kernels_shape(1, 4, 300, 128);
  const reference::CaseData data[] = {codes_of(shape, 62, GetParam().codes()),
                                      codes_of(shape, 63, GetParam().codes())};
  Arena arenas[] = {Arena(shape, GetParam()), Arena(shape, GetParam())};
  cudaStream_t streams[2];
  std::vector<Plan> plans;
  std::vector<reference::Workspace> workspaces;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(arenas[i].allocated() && arenas[i].fill(data[i]));
    ASSERT_EQ(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), cudaSuccess);
    const auto planned = plan(arenas[i].problem(), device_, &variant());
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    plans.push_back(*planned);
    auto workspace = reference::Workspace::make(*planned);
    ASSERT_TRUE(workspace.ok()) << workspace.status().message();
    workspaces.push_back(std::move(*workspace));
    arenas[i].poison();
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  constexpr int kLaunches = 50;
  for (int launch = 0; launch < kLaunches; ++launch) {
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Status status = forward(plans[at], workspaces[at].data(), streams[i]);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(arenas[i].output(), output_alone(GetParam(), data[i], device_)) << "stream " << i;
    static_cast<void>(cudaStreamDestroy(streams[i]));
  }
}

TEST_P(OnDevice, AReplayedGraphSeesNewInputsAndScales) {
  if (!ready_) return;
  const reference::Shape shape = kernels_shape(2, 2, 100, 128);
  Arena arena(shape, GetParam());
  reference::CaseData data = codes_of(shape, 64, GetParam().codes());
  ASSERT_TRUE(arena.allocated() && arena.fill(data));
  const auto planned = plan(arena.problem(), device_, &variant());
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  const auto workspace = reference::Workspace::make(*planned);
  ASSERT_TRUE(workspace.ok()) << workspace.status().message();
  const auto launch = kept_launch(*planned, workspace->data());
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  for (const std::uint64_t seed : {64, 65, 66}) {
    data = codes_of(shape, seed, GetParam().codes());
    vary_descales(data);
    ASSERT_TRUE(arena.fill(data));
    arena.poison();
    ASSERT_TRUE((*launch)().ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(arena.output(), output_alone(GetParam(), data, device_)) << "seed " << seed;
  }
}

/// Runs `batch` x `heads` problems of one head, all alike but the last, and compares each head of O
/// with the head alone.
void expect_every_head(const Kernel& kernel, const Device& device, int batch, int heads,
                       std::int64_t seq) {
  const reference::Shape one = make_shape(1, 1, seq, seq, kernel.head_dim);
  const reference::CaseData common = codes_of(one, 67, kernel.codes());
  const reference::CaseData last = codes_of(one, 68, kernel.codes());
  Arena arena(make_shape(batch, heads, seq, seq, kernel.head_dim), kernel);
  if (!arena.allocated()) {
    GTEST_SKIP() << "not enough free device memory for this problem";
  }
  ASSERT_TRUE(arena.fill_heads(common, last));
  arena.poison();
  const PlanOptions invariant{.batch_invariant = true};
  const auto planned = plan(arena.problem(), device, kernel.variant, invariant);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  ASSERT_TRUE(forward(*planned, nullptr, nullptr).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<std::uint16_t> want = output_alone(kernel, common, device, invariant);
  const std::vector<std::uint16_t> want_last = output_alone(kernel, last, device, invariant);
  ASSERT_FALSE(want.empty() || want_last.empty());
  const std::size_t count = static_cast<std::size_t>(batch) * static_cast<std::size_t>(heads);
  constexpr std::size_t kAtOnce = 1024;
  for (std::size_t first = 0; first < count; first += kAtOnce) {
    const std::size_t some = std::min(kAtOnce, count - first);
    std::vector<std::uint16_t> got(some * want.size());
    ASSERT_TRUE(arena.download_heads(first, got));
    for (std::size_t i = 0; i < some; ++i) {
      const auto& expected = first + i + 1 == count ? want_last : want;
      ASSERT_EQ(std::memcmp(&got[i * want.size()], expected.data(), 2 * want.size()), 0)
          << "head " << first + i;
    }
  }
}

/// One kernel of each way of addressing memory: the first of each family, and Stage C's last.
std::vector<Kernel> representatives() {
  std::vector<Kernel> some;
  for (const Kernel& kernel : all_kernels()) {
    const bool is_new = std::none_of(some.begin(), some.end(), [&](const Kernel& other) {
      return other.variant->family == kernel.variant->family;
    });
    if (is_new || kernel.name == "stage_c_lut_cp_async_wmma_pv_warp_spec_swizzle") {
      some.push_back(kernel);
    }
  }
  return some;
}

class LargeOnDevice : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Gates, LargeOnDevice, testing::ValuesIn(representatives()),
                         [](const testing::TestParamInfo<Kernel>& info) {
                           return "device_" + info.param.name;
                         });

TEST_P(LargeOnDevice, TensorsPastTwoToThe31Elements) {
  if (!ready_) return;
  constexpr int kBatch = 33;
  constexpr int kHeads = 1000;
  constexpr std::int64_t kSeq = 1024;
  static_assert(std::int64_t{kBatch} * kHeads * kSeq * 64 > std::int64_t{1} << 31);
  if (GetParam().rows(kSeq) < kSeq) return;  // of few rows: Views, on the host executor
  expect_every_head(GetParam(), device_, kBatch, kHeads, kSeq);
}

TEST_P(LargeOnDevice, MoreHeadsThanAGridHasRows) {
  if (!ready_) return;
  expect_every_head(GetParam(), device_, 70000, 1, GetParam().keys(17));
  expect_every_head(GetParam(), device_, 2, 40000, GetParam().keys(17));
}

#endif  // FP8_SDPA_HAS_DEVICE

}  // namespace
}  // namespace fp8_sdpa::tests
