// The quantiser against the reference's: codes and descales bit by bit where nothing is
// transformed, and else within what fp32 sums may differ by.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "fp8_sdpa/quantise.hpp"
#include "gpu/executor_options.hpp"
#include "reference/formats/fp8.hpp"
#include "reference/formats/half.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/inputs/distributions.hpp"
#include "reference/inputs/philox.hpp"
#include "reference/judge/harness.hpp"
#include "reference/oracle/memory.hpp"
#include "tests/gates/gate_cases.hpp"

namespace fp8_sdpa::tests {
namespace {

/// What is quantised, and how.
struct Request {
  int batch = 2;
  int heads = 3;
  std::int64_t seq = 300;
  int head_dim = 64;
  Dtype from = Dtype::kBFloat16;
  Dtype to = Dtype::kE4M3;
  bool rotate = false;
  bool smooth = false;
  bool sequence_major = false;
  bool broadcast = false;  ///< all heads are the first one's
  bool counts = true;      ///< infinities
  bool keeps_mean = true;
  std::vector<float> static_descales = {};
  std::uint64_t seed = 7;

  reference::Extent extent(std::int64_t pad) const {
    return {batch, heads, seq, head_dim, sequence_major, pad};
  }
  std::size_t all_heads() const { return static_cast<std::size_t>(batch * heads); }
};

struct Outcome {
  std::vector<std::uint8_t> codes;
  std::vector<float> descales;
  std::vector<float> mean;
  std::uint32_t infinities = 0;
  bool operator==(const Outcome&) const = default;
};

constexpr std::uint32_t kCountBefore = 5;

/// Values that `from` can hold: heads 2^-6 to 2^6 apart, channels with offsets, and in each head
/// one largest value, whose place moves through rows and columns from head to head.
std::vector<float> values_for(const Request& request) {
  const reference::PhiloxStream stream(41, static_cast<std::uint64_t>(request.seq));
  std::vector<float> values(request.extent(0).contiguous_elements());
  const auto dim = static_cast<std::size_t>(request.head_dim);
  const std::size_t per_head = values.size() / request.all_heads();
  const std::size_t rows = per_head / dim;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t head = i / per_head;
    const std::size_t row = i % per_head / dim;
    const std::size_t column = i % dim;
    float x = reference::normal_from_word(stream.word(i), column % 5 == 0 ? 2.0 : 0.0, 1.0);
    if (row == head * 29 % rows && column == head * 13 % dim) x = head % 2 == 0 ? 40.0F : -40.0F;
    x = std::ldexp(x, static_cast<int>(head * 5 % 13) - 6);
    values[i] = request.from == Dtype::kFloat
                    ? x
                    : reference::decode_16(reference::encode_16(x, request.from), request.from);
  }
  return values;
}

std::unique_ptr<reference::Buffer> buffer(const Device& device, std::size_t bytes,
                                          const void* contents, const char* name) {
  auto made = reference::allocate(device, bytes, name);
  EXPECT_TRUE(made.ok()) << made.status().message();
  const Status filled = contents != nullptr ? (*made)->upload(contents) : (*made)->poison();
  EXPECT_TRUE(filled.ok()) << filled.message();
  return std::move(*made);
}

/// Input in the memory layout and the dtype that are asked for; padding is NaN.
std::vector<std::uint8_t> memory_of(const Request& request, const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  const auto append = [&](const auto& elements) {
    bytes.resize(elements.size() * sizeof(elements[0]));
    std::memcpy(bytes.data(), elements.data(), bytes.size());
  };
  const reference::Extent extent = request.extent(8);
  if (request.from == Dtype::kFloat) {
    append(extent.scatter(values));
  } else {
    std::vector<std::uint16_t> codes;
    for (const float x : values) codes.push_back(reference::encode_16(x, request.from));
    append(extent.scatter(codes));
  }
  return bytes;
}

Outcome run(const Request& request, const std::vector<float>& values, const Device& device) {
  const std::vector<std::uint8_t> memory = memory_of(request, values);
  const reference::Extent in = request.extent(8);
  const reference::Extent out = request.extent(16);
  const std::size_t heads = request.all_heads();
  const std::size_t mean_size = heads * static_cast<std::size_t>(request.head_dim);
  const auto from = buffer(device, memory.size(), memory.data(), "from");
  const auto codes = buffer(device, out.elements(), nullptr, "codes");
  const bool fixed = !request.static_descales.empty();
  const auto descales = buffer(device, heads * sizeof(float),
                               fixed ? request.static_descales.data() : nullptr, "descales");
  const auto mean = buffer(device, mean_size * sizeof(float), nullptr, "mean");
  const auto infinities = buffer(device, sizeof kCountBefore, &kCountBefore, "infinities");

  Quantisation q;
  q.batch = request.batch;
  q.heads = request.heads;
  q.seq = request.seq;
  q.head_dim = request.head_dim;
  q.from = in.view(from->data(), request.from);
  if (request.broadcast) q.from.stride_head = q.from.stride_batch = 0;
  q.codes = out.view(codes->data(), request.to);
  q.descales = static_cast<float*>(descales->data());
  q.static_descales = fixed;
  q.rotate = request.rotate;
  q.seed = request.seed;
  q.smooth = request.smooth;
  if (request.keeps_mean) q.mean = static_cast<float*>(mean->data());
  if (request.counts) q.infinities = static_cast<std::uint32_t*>(infinities->data());
  const auto made = plan(q, device);
  EXPECT_TRUE(made.ok()) << made.status().message();
  if (!made.ok()) return {};
  const auto workspace = buffer(device, made->workspace_bytes(), nullptr, "workspace");
  for (const Status& status :
       {quantise(*made, workspace->data(), nullptr), reference::synchronise(device)}) {
    EXPECT_TRUE(status.ok()) << status.message();
  }

  Outcome outcome;
  std::vector<std::uint8_t> code_memory(out.elements());
  outcome.descales.resize(heads);
  outcome.mean.resize(mean_size);
  for (const Status& status :
       {codes->download(code_memory.data()), descales->download(outcome.descales.data()),
        mean->download(outcome.mean.data()), infinities->download(&outcome.infinities)}) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  for (const auto* one : {&from, &codes, &descales, &mean, &infinities, &workspace}) {
    const auto changed = (*one)->changed_guard_bytes();
    EXPECT_TRUE(changed.ok() && *changed == 0) << (*one)->name();
  }
  for (const reference::ByteRange& gap : out.gaps(1)) {
    const auto* const begin = code_memory.data();
    EXPECT_EQ(std::count(begin + gap.begin, begin + gap.end, 0xFF),
              static_cast<std::ptrdiff_t>(gap.end - gap.begin))
        << "padding of the codes was written";
  }
  outcome.codes = out.gather(code_memory);
  outcome.infinities -= kCountBefore;
  return outcome;
}

/// What is to be quantised, after the transformations, and how far fp32 may be from it.
struct Transformed {
  std::vector<double> values;
  std::vector<double> slack;
  std::vector<double> mean;
};

Transformed transform(const Request& request, const std::vector<float>& from) {
  Transformed result;
  result.values.assign(from.begin(), from.end());
  result.slack.assign(from.size(), 0.0);
  const auto dim = static_cast<std::size_t>(request.head_dim);
  if (request.rotate) {
    // Some 19 sums of at most the row's l1 norm / sqrt(dim), each cut off after 23 bits.
    for (std::size_t row = 0; row < from.size(); row += dim) {
      double norm = 0.0;
      for (std::size_t c = 0; c < dim; ++c) {
        if (std::isfinite(from[row + c])) norm += std::fabs(from[row + c]);
      }
      const double slack = 0x1p-18 * norm / std::sqrt(static_cast<double>(dim));
      std::fill_n(result.slack.begin() + static_cast<std::ptrdiff_t>(row), dim, slack);
    }
    result.values = reference::rotate(result.values, request.head_dim, request.seed);
  }
  if (!request.smooth) return result;
  const auto heads = static_cast<std::int64_t>(request.all_heads());
  result.mean = reference::means({from.begin(), from.end()}, heads, request.head_dim);
  if (request.rotate) {
    result.mean = reference::rotate(result.mean, request.head_dim, request.seed);
  }
  const std::size_t per_head = from.size() / request.all_heads();
  std::vector<double> largest(request.all_heads());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!std::isfinite(result.values[i])) continue;
    double& most = largest[i / per_head];
    most = std::max(most, std::fabs(result.values[i]));
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    result.values[i] -= result.mean[i / per_head * dim + i % dim];
    result.slack[i] += 0x1p-20 * largest[i / per_head];
  }
  return result;
}

/// Codes and descales of the outcome are those of the request's values.
void expect_right(const Request& request, const std::vector<float>& values,
                  const Outcome& outcome) {
  const std::size_t per_head = values.size() / request.all_heads();
  const Transformed want = transform(request, values);
  const bool plain = !request.rotate && !request.smooth;
  const auto dim = static_cast<std::size_t>(request.head_dim);
  for (std::size_t head = 0; head < request.all_heads(); ++head) {
    SCOPED_TRACE(testing::Message() << "head " << head);
    double amax = 0.0;
    double slack = 0.0;
    for (std::size_t i = head * per_head; i < (head + 1) * per_head; ++i) {
      if (std::isfinite(want.values[i])) amax = std::max(amax, std::fabs(want.values[i]));
      slack = std::max(slack, want.slack[i]);
    }
    const float descale = outcome.descales[head];
    const double exact = amax / reference::max_finite(request.to);
    if (!request.static_descales.empty()) {
      ASSERT_EQ(descale, request.static_descales[head]);
    } else if (exact < 0x1p-100) {
      // Or what rounding has left of a single row, less its mean.
      ASSERT_TRUE(descale == 1.0F || descale <= slack / reference::max_finite(request.to));
    } else if (plain) {
      ASSERT_EQ(descale, static_cast<float>(amax) / reference::max_finite(request.to));
    } else {
      ASSERT_NEAR(descale, exact, slack / reference::max_finite(request.to) + 0x1p-23 * exact);
    }
    for (std::size_t c = 0; request.smooth && request.keeps_mean && c < dim; ++c) {
      ASSERT_NEAR(outcome.mean[head * dim + c], want.mean[head * dim + c], slack) << c;
    }
    for (std::size_t i = head * per_head; i < (head + 1) * per_head; ++i) {
      const std::uint8_t code = outcome.codes[i];
      const auto encode = [&](double x) {
        return reference::encode_fp8(static_cast<float>(x) * (1.0F / descale), request.to);
      };
      if (plain) {
        ASSERT_EQ(code, encode(want.values[i])) << "element " << i % per_head;
        continue;
      }
      const auto value = [&](std::uint8_t c) { return reference::decode_table(request.to)[c]; };
      if (std::isnan(want.values[i])) {
        ASSERT_TRUE(std::isnan(value(code))) << "element " << i % per_head;
        continue;
      }
      ASSERT_GE(value(code), value(encode(want.values[i] - want.slack[i]))) << i % per_head;
      ASSERT_LE(value(code), value(encode(want.values[i] + want.slack[i]))) << i % per_head;
    }
  }
}

class Quantiser : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ready_ = use_backend(GetParam(), &device_); }
  Outcome expect_right_run(const Request& request, const std::vector<float>& values) {
    SCOPED_TRACE(testing::Message()
                 << name_of(request.from) << " to " << name_of(request.to) << ", head_dim "
                 << request.head_dim << ", seq " << request.seq
                 << (request.rotate ? ", rotate" : "") << (request.smooth ? ", smooth" : ""));
    const Outcome outcome = run(request, values, device_);
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
          Request request{.seq = seq, .head_dim = head_dim, .from = from};
          request.heads = head_dim == 64 ? 3 : 1;
          request.to = turn++ % 2 != 0 ? Dtype::kE5M2 : Dtype::kE4M3;
          request.rotate = (options & 1) != 0;
          request.smooth = (options & 2) != 0;
          request.sequence_major = turn % 3 == 0;
          request.counts = turn % 5 != 0;
          request.keeps_mean = turn % 7 != 0;
          request.seed = static_cast<std::uint64_t>(turn);
          expect_right_run(request, values_for(request));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// The largest value of a head is found wherever it is: every lane and warp has one somewhere.
TEST_P(Quantiser, FindsTheLargestValueEverywhere) {
  if (!ready_) return;
  for (const Dtype from : {Dtype::kBFloat16, Dtype::kFloat}) {
    Request request{.batch = 8, .heads = 32, .seq = 140, .head_dim = 64, .from = from};
    expect_right_run(request, values_for(request));
    if (HasFailure()) return;
  }
}

TEST_P(Quantiser, KeepsNanAndCountsInfinities) {
  if (!ready_) return;
  for (const Dtype from : {Dtype::kBFloat16, Dtype::kHalf, Dtype::kFloat}) {
    for (const bool transforms : {false, true}) {
      Request request{.seq = 200, .head_dim = 128, .from = from};
      request.rotate = request.smooth = transforms;
      std::vector<float> values = values_for(request);
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
    }
  }
}

TEST_P(Quantiser, TakesTheCallersDescales) {
  if (!ready_) return;
  for (const bool smooth : {false, true}) {
    Request request{.seq = 150, .head_dim = 64};
    request.smooth = smooth;
    // So small that much of it saturates, up to so large that little is left.
    request.static_descales = {0x1p-100F, 1e-3F, 0.01F, 0.1F, 3.0F, 1e30F};
    expect_right_run(request, values_for(request));
  }
}

TEST_P(Quantiser, ReadsOneHeadForAll) {
  if (!ready_) return;
  Request request{.seq = 140, .head_dim = 64};
  request.broadcast = true;
  std::vector<float> values = values_for(request);
  const std::size_t per_head = values.size() / request.all_heads();
  for (std::size_t i = per_head; i < values.size(); ++i) values[i] = values[i - per_head];
  expect_right_run(request, values);
}

// Scales that float can hardly hold, and none that loses bits.
TEST_P(Quantiser, HasNoSubnormalDescale) {
  if (!ready_) return;
  for (const float factor : {0x1p-85F, 0x1p-100F, 0x1p-124F, 0x1p100F}) {
    Request request{.seq = 20, .head_dim = 64, .from = Dtype::kFloat};
    std::vector<float> values = values_for(request);
    for (float& x : values) x *= factor;
    expect_right_run(request, values);
  }
}

// Whoever takes which ticket when: more blocks than one, and heads of several tiles.
TEST(QuantiserSchedules, GiveTheSameBits) {
  Device device;
  if (!use_backend(Backend::kHost, &device)) return;
  device.sm_count = 3;
  Request request{.batch = 1, .heads = 5, .seq = 300, .head_dim = 64};
  request.rotate = request.smooth = true;
  const std::vector<float> values = values_for(request);
  const Outcome first = run(request, values, device);
  expect_right(request, values, first);
  for (const Schedule schedule : {Schedule::kFifo, Schedule::kLifo, Schedule::kRandom,
                                  Schedule::kThreadPriority, Schedule::kWarpPriority}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      device.executor = std::make_shared<const ExecutorOptions>(
          ExecutorOptions{.schedule = schedule, .seed = seed});
      EXPECT_EQ(run(request, values, device), first) << static_cast<int>(schedule);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, Quantiser, testing::Values(Backend::kHost, Backend::kDevice),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace fp8_sdpa::tests
