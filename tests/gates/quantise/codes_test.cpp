// The quantiser against the reference's: reference/judge/quantise_check.hpp on both backends.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/executor_options.hpp"
#include "reference/judge/quantise_check.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

using reference::quantiser_values;
using reference::QuantiserCase;

/// Runs it; what was written to the caller's memory alone is right.
reference::Quantised run(const QuantiserCase& request, const std::vector<float>& values,
                         const Device& device) {
  std::vector<reference::GateResult> gates;
  auto outcome = reference::run_quantiser(request, values, device, gates);
  for (const auto& gate : gates) EXPECT_TRUE(gate.pass) << gate.name << ": " << gate.detail;
  EXPECT_TRUE(outcome.ok()) << outcome.status().message();
  return outcome.ok() ? *std::move(outcome) : reference::Quantised{};
}

/// Codes and descales of the outcome are those of the request's values.
void expect_right(const QuantiserCase& request, const std::vector<float>& values,
                  const reference::Quantised& outcome) {
  for (const auto& gate : reference::judge_quantised(request, values, outcome)) {
    EXPECT_TRUE(gate.pass) << gate.name << " is " << gate.value << ": " << gate.detail;
  }
}

class Quantiser : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }
  reference::Quantised expect_right_run(const QuantiserCase& request,
                                        const std::vector<float>& values) {
    SCOPED_TRACE(testing::Message()
                 << name_of(request.from) << " to " << name_of(request.to) << ", head_dim "
                 << request.head_dim << ", seq " << request.seq
                 << (request.rotate ? ", rotate" : "") << (request.smooth ? ", smooth" : ""));
    const reference::Quantised outcome = run(request, values, device_);
    if (!HasFailure()) expect_right(request, values, outcome);
    return outcome;
  }
  Device device_;
  bool ready_ = false;
};

// Lengths below, at and above a tile, in every combination of options; formats and layouts take
// turns.
TEST_P(Quantiser, GivesTheReferencesCodes) {
  if (!ready_) return;
  int turn = 0;
  for (const int head_dim : {64, 128, 256}) {
    for (const std::int64_t seq : {1, 77, 128, 300}) {
      if (head_dim != 64 && seq != 77 && seq != 300) continue;
      for (int options = 0; options < 4; ++options) {
        for (const Dtype from : {Dtype::kBFloat16, Dtype::kHalf, Dtype::kFloat}) {
          QuantiserCase request{.seq = seq, .head_dim = head_dim, .from = from};
          request.heads = head_dim == 64 ? 3 : 1;
          request.to = std::array{Dtype::kE4M3, Dtype::kE5M2, Dtype::kInt8}[turn++ / 2 % 3];
          request.rotate = (options & 1) != 0;
          request.smooth = (options & 2) != 0;
          request.sequence_major = turn % 3 == 0;
          request.counts = turn % 5 != 0;
          request.keeps_mean = turn % 7 != 0;
          request.seed = static_cast<std::uint64_t>(turn);
          if (turn % 4 == 1) request.dot_group = request.heads;
          expect_right_run(request, quantiser_values(request));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Blocks of rows, whole and in part, of a slab and of half a slab.
TEST_P(Quantiser, GivesEachBlockItsDescale) {
  if (!ready_) return;
  int turn = 0;
  for (const int head_dim : {64, 128, 256}) {
    for (const std::int64_t seq : {1, 64, 130, 257, 1100}) {
      for (const Dtype from : {Dtype::kBFloat16, Dtype::kHalf, Dtype::kFloat}) {
        QuantiserCase request{.seq = seq, .head_dim = head_dim, .from = from};
        request.heads = head_dim == 64 ? 3 : 1;
        request.block_rows = turn++ % 2 != 0 ? kQueriesOfBlock : kKeysOfBlock;
        request.to = turn % 7 == 0 ? Dtype::kE5M2 : Dtype::kE4M3;
        request.rotate = turn % 3 != 0;
        request.smooth = turn % 4 != 0;
        request.sequence_major = turn % 5 == 0;
        request.counts = turn % 6 != 0;
        request.keeps_mean = turn % 7 != 0;
        request.seed = static_cast<std::uint64_t>(turn);
        if (turn % 4 == 1) request.dot_group = request.heads;
        if (turn % 9 == 0) {
          for (std::size_t i = 0; i < request.all_heads() * request.blocks(); ++i) {
            request.static_descales.push_back(0.01F * static_cast<float>(1 + i % 5));
          }
        }
        expect_right_run(request, quantiser_values(request));
        if (HasFailure()) return;
      }
    }
  }
}

// The largest value of a head is found wherever it is: every lane and warp has one somewhere.
TEST_P(Quantiser, FindsTheLargestValueEverywhere) {
  if (!ready_) return;
  for (const Dtype from : {Dtype::kBFloat16, Dtype::kFloat}) {
    QuantiserCase request{.batch = 8, .heads = 32, .seq = 140, .head_dim = 64, .from = from};
    for (const int block_rows : {0, kQueriesOfBlock, kKeysOfBlock}) {
      request.block_rows = block_rows;
      expect_right_run(request, quantiser_values(request));
      if (HasFailure()) return;
    }
    request.block_rows = 0;
    request.to = Dtype::kInt8;
    expect_right_run(request, quantiser_values(request));
  }
}

TEST_P(Quantiser, KeepsNanAndCountsInfinities) {
  if (!ready_) return;
  for (const Dtype from : {Dtype::kBFloat16, Dtype::kHalf, Dtype::kFloat}) {
    for (const auto& [transforms, block_rows] :
         {std::pair{false, 0}, {true, 0}, {false, kKeysOfBlock}, {true, kQueriesOfBlock}}) {
      QuantiserCase request{.seq = 200, .head_dim = 128, .from = from};
      request.rotate = request.smooth = transforms;
      request.block_rows = block_rows;
      std::vector<float> values = quantiser_values(request);
      const std::size_t per_head = values.size() / request.all_heads();
      // NaN of the least payload, which cutting off bits would make an infinity.
      const std::uint32_t nan = from == Dtype::kFloat ? 0x7f800001 : 0x7fc00000;
      std::memcpy(&values[130 * 128 + 3], &nan, sizeof nan);
      values[per_head + 11] = INFINITY;
      values[2 * per_head + 199 * 128 + 127] = -INFINITY;
      values[2 * per_head + 12] = INFINITY;
      // Two in a row that rotation subtracts from each other.
      values[3 * per_head] = INFINITY;
      values[3 * per_head + 1] = -INFINITY;
      // A head without a finite value but zeros.
      std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(4 * per_head), per_head, 0.0F);
      EXPECT_EQ(expect_right_run(request, values).infinities, 5U);
      if (HasFailure()) return;
      request.to = Dtype::kInt8;
      if (block_rows != 0) continue;
      const auto told = expect_right_run(request, values);
      EXPECT_TRUE(std::isnan(told.descales[0]) && !std::isnan(told.descales[5]));
    }
  }
}

TEST_P(Quantiser, TakesTheCallersDescales) {
  if (!ready_) return;
  for (const bool smooth : {false, true}) {
    QuantiserCase request{.seq = 150, .head_dim = 64};
    request.smooth = smooth;
    // So small that much of it saturates, up to so large that little is left.
    request.static_descales = {0x1p-100F, 1e-3F, 0.01F, 0.1F, 3.0F, 1e30F};
    expect_right_run(request, quantiser_values(request));
    request.to = Dtype::kInt8;
    expect_right_run(request, quantiser_values(request));
  }
}

// A float keeps its 24 bits when it is rotated: nothing else is in these rows.
TEST_P(Quantiser, RotatesARowOfOneElementExactly) {
  if (!ready_) return;
  for (const auto& [head_dim, block_rows] :
       {std::pair{64, 0}, {256, 0}, {64, kKeysOfBlock}, {256, kKeysOfBlock}}) {
    QuantiserCase request{.seq = 140, .head_dim = head_dim, .from = Dtype::kFloat};
    request.rotate = true;
    request.block_rows = block_rows;
    std::vector<float> values = quantiser_values(request);
    const auto dim = static_cast<std::size_t>(head_dim);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % dim != i / dim % dim) values[i] = 0.0F;
    }
    expect_right_run(request, values);
  }
}

// Rows past the end are 0, and less the mean they would be the largest.
TEST_P(Quantiser, SmoothsWhatIsFarFromZero) {
  if (!ready_) return;
  for (const auto& [rotate, block_rows] :
       {std::pair{false, 0}, {true, 0}, {false, kKeysOfBlock}, {true, kQueriesOfBlock}}) {
    QuantiserCase request{.seq = 77, .head_dim = 128};
    request.offset = 100.0;
    request.smooth = true;
    request.rotate = rotate;
    request.block_rows = block_rows;
    expect_right_run(request, quantiser_values(request));
  }
}

TEST_P(Quantiser, ReadsOneHeadForAll) {
  if (!ready_) return;
  QuantiserCase request{.seq = 140, .head_dim = 64};
  request.broadcast = true;
  std::vector<float> values = quantiser_values(request);
  const std::size_t per_head = values.size() / request.all_heads();
  for (std::size_t i = per_head; i < values.size(); ++i) values[i] = values[i - per_head];
  for (const int block_rows : {0, kKeysOfBlock}) {
    request.block_rows = block_rows;
    expect_right_run(request, values);
  }
}

// Scales that float can hardly hold, and none that loses bits.
TEST_P(Quantiser, HasNoSubnormalDescale) {
  if (!ready_) return;
  for (const float factor : {0x1p-85F, 0x1p-100F, 0x1p-124F, 0x1p100F}) {
    for (const int block_rows : {0, kQueriesOfBlock, kKeysOfBlock}) {
      QuantiserCase request{.seq = 20, .head_dim = 64, .from = Dtype::kFloat};
      request.block_rows = block_rows;
      std::vector<float> values = quantiser_values(request);
      for (float& x : values) x *= factor;
      expect_right_run(request, values);
      // The least descale that there is, and a head's just below it.
      const std::size_t per_head = values.size() / request.all_heads();
      std::fill(values.begin(), values.end(), 0.0F);
      values[3] = 448.0F * 0x1p-100F;
      values[per_head + 3] = 447.0F * 0x1p-100F;
      expect_right_run(request, values);
    }
  }
}

// As many shares of a head's column sums as there are at most.
TEST_P(Quantiser, AddsUpAllSharesOfALongHead) {
  if (!ready_) return;
  for (const int head_dim : {64, 256}) {
    QuantiserCase request{.batch = 1, .heads = 1, .seq = 4500, .head_dim = head_dim};
    request.smooth = true;
    request.block_rows = kKeysOfBlock;
    expect_right_run(request, quantiser_values(request));
  }
}

// Descales that are given, of heads of several slabs, by the quantiser of slabs and by the one that
// older devices have: the same codes. Whose strides TMA does not take has the latter too.
TEST(QuantiserGivenDescales, AreTheSameOnOlderDevices) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  for (const Dtype from : {Dtype::kBFloat16, Dtype::kFloat}) {
    for (const Dtype to : {Dtype::kE4M3, Dtype::kInt8}) {
      QuantiserCase request{.batch = 1, .heads = 3, .seq = 333, .head_dim = 128, .from = from};
      request.to = to;
      request.static_descales = {0.01F, 0.1F, 3.0F};
      for (const bool smooth : {false, true}) {
        request.smooth = smooth;
        const std::vector<float> values = quantiser_values(request);
        device.sm_version = 90;
        const reference::Quantised slabs = run(request, values, device);
        expect_right(request, values, slabs);
        device.sm_version = 80;
        const reference::Quantised tiles = run(request, values, device);
        expect_right(request, values, tiles);
        if (smooth) continue;  // the sums of its mean are added up in another order
        EXPECT_EQ(slabs, tiles) << name_of(from) << name_of(to);
      }
    }
  }
}

TEST(QuantiserGivenDescales, DeclineBlocksThatTmaDoesNotRead) {
  QuantiserCase request{.batch = 1, .heads = 1, .seq = 130};
  const std::vector<float> values = quantiser_values(request);
  const auto plan_with_stride = [&](std::int64_t stride, int block_rows, int sm_version) {
    Device device;
    static_cast<void>(use_backend(Backend::kHost, &device));
    device.sm_version = sm_version;
    Status planned;
    const auto launch = [&](const QuantisePlan& made, void* workspace) -> Status {
      Quantisation q = made.quantisation();
      q.from.stride_seq = stride;
      q.block_rows = block_rows;
      const Result<QuantisePlan> other = plan(q, device);
      planned = other.ok() ? Status{} : other.status();
      return quantise(made, workspace, nullptr);
    };
    std::vector<reference::GateResult> gates;
    EXPECT_TRUE(reference::run_quantiser(request, values, device, gates, launch).ok());
    return planned;
  };
  EXPECT_TRUE(plan_with_stride(64, kKeysOfBlock, 90).ok());
  EXPECT_TRUE(plan_with_stride(0, 0, 90).ok());
  EXPECT_EQ(plan_with_stride(0, kKeysOfBlock, 90).code(), StatusCode::kUnsupported);
  const Status older = plan_with_stride(64, kKeysOfBlock, 80);
  EXPECT_NE(older.message().find("is sm_80"), std::string::npos) << older.message();
}

// A launch may begin while an earlier kernel still writes what it reads. (More than 256 rows to be
// smoothed are added up by a kernel before, which begins when earlier ones have ended.)
TEST(QuantiserEarlyStart, ReadsNothingBeforeItsTime) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  for (const int block_rows : {0, kQueriesOfBlock, kKeysOfBlock}) {
    for (const bool smooth : {false, true}) {
      QuantiserCase request{.seq = 200};
      request.block_rows = block_rows;
      request.smooth = smooth;
      const std::vector<float> values = quantiser_values(request);
      const auto late = [&](const QuantisePlan& made, void* workspace) -> Status {
        const Quantisation& q = made.quantisation();
        std::vector<std::uint8_t> kept(request.extent(8).elements() * sizeof(std::uint16_t));
        std::memcpy(kept.data(), q.from.data, kept.size());
        std::memset(q.from.data, 0xFF, kept.size());
        Device then = made.device();
        then.executor = std::make_shared<const ExecutorOptions>(ExecutorOptions{
            .earlier_kernels = [&] { std::memcpy(q.from.data, kept.data(), kept.size()); }});
        const Result<QuantisePlan> planned = plan(q, then);
        return planned.ok() ? quantise(*planned, workspace, nullptr) : planned.status();
      };
      std::vector<reference::GateResult> gates;
      const auto got = reference::run_quantiser(request, values, device, gates, late);
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_TRUE(*got == run(request, values, device)) << block_rows << smooth;
    }
  }
}

// Whichever block comes to its tiles first: heads of several tiles, of which blocks have several.
TEST(QuantiserSchedules, GiveTheSameBits) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  device.sm_count = 3;
  QuantiserCase heads{.batch = 1, .heads = 5, .seq = 300, .head_dim = 64};
  heads.rotate = heads.smooth = true;
  const QuantiserCase lone{.batch = 1, .heads = 1, .seq = 700, .head_dim = 64};
  for (const QuantiserCase& request : {heads, lone}) {
    const std::vector<float> values = quantiser_values(request);
    const reference::Quantised first = run(request, values, device);
    expect_right(request, values, first);
    for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom,
                                    Schedule::kThreadPriority, Schedule::kWarpPriority}) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        device.executor = std::make_shared<const ExecutorOptions>(
            ExecutorOptions{.schedule = schedule, .seed = seed});
        EXPECT_EQ(run(request, values, device), first) << static_cast<int>(schedule);
      }
    }
    device.executor = nullptr;
  }
}

// Few blocks, of which each has many tiles of a head and loads them twice; and so many that a head
// begins where a step does, that it does not, and that some have nothing to do.
TEST(QuantiserBlocks, GiveTheSameBitsHoweverManyRun) {
#if defined(FP8_SDPA_TSAN)
  constexpr int kMultiprocessors[] = {2, 3};  // ThreadSanitizer knows 8128 threads
#else
  constexpr int kMultiprocessors[] = {2, 3, 4, 11};
#endif
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  QuantiserCase longest{.batch = 1, .heads = 2, .seq = 600, .head_dim = 256};
  longest.smooth = true;
  QuantiserCase heads{.batch = 1, .heads = 5, .seq = 300, .head_dim = 64};
  heads.rotate = heads.smooth = true;
  const QuantiserCase lone{.batch = 1, .heads = 1, .seq = 700, .head_dim = 64};
  QuantiserCase fixed = heads;
  fixed.static_descales = {0x1p-8F, 1e-3F, 0.01F, 0.1F, 3.0F};
  for (const QuantiserCase& request : {longest, heads, lone, fixed}) {
    const std::vector<float> values = quantiser_values(request);
    device.sm_count = 1;
    const reference::Quantised first = run(request, values, device);
    expect_right(request, values, first);
    for (const int multiprocessors : kMultiprocessors) {
      device.sm_count = multiprocessors;
      EXPECT_EQ(run(request, values, device), first) << multiprocessors;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Quantiser, testing::Values(Backend::kHost, Backend::kDevice),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace fp8_sdpa::tests
