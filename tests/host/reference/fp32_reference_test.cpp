// The fp32 reference kernel against the fp64 oracle, on the host executor and, where there is one,
// on a GPU: the configured shapes and odd ones.
#include "reference/oracle/fp32_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gpu/executor_options.hpp"
#include "reference/config/config.hpp"
#include "reference/judge/gates.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {
namespace {

// fp32 sums of up to 2048 terms of one sign differ from exact ones by less than this, relatively.
constexpr double kRelativeL2 = 1e-5;
constexpr double kLse = 2e-5;

void expect_agreement(const CaseData& data, const Device& device) {
  const auto got = attention_fp32(data, device);
  ASSERT_TRUE(got.ok()) << got.status().message();
  const Metrics o = compare(got->o, data.reference_kernel.o, data.shape, 1e-4);
  EXPECT_EQ(o.non_finite, 0);
  EXPECT_LT(o.rel_l2, kRelativeL2) << data.shape.name;
  const Metrics lse = compare_lse(got->lse, data.reference_kernel.lse, data.shape);
  EXPECT_LT(lse.max_abs_err, kLse * (1.0 + data.score_bound)) << data.shape.name;
}

Shape make_shape(int batch, int heads_q, int heads_kv, std::int64_t seq_q, std::int64_t seq_kv,
                 int head_dim, Mask mask) {
  Shape shape;
  shape.name = "b" + std::to_string(batch) + "_h" + std::to_string(heads_q) + "_" +
               std::to_string(heads_kv) + "_s" + std::to_string(seq_q) + "_" +
               std::to_string(seq_kv) + "_d" + std::to_string(head_dim) + "_" + name_of(mask);
  shape.batch = batch;
  shape.heads_q = heads_q;
  shape.heads_kv = heads_kv;
  shape.seq_q = seq_q;
  shape.seq_kv = seq_kv;
  shape.head_dim = head_dim;
  shape.mask = mask;
  shape.inputs.family = "normal";
  return shape;
}

/// Odd sizes, both masks, groups of heads, rows without keys, more dims than threads.
std::vector<Shape> odd_shapes() {
  return {make_shape(1, 1, 1, 1, 1, 1, Mask::kNone), make_shape(2, 3, 1, 17, 129, 40, Mask::kNone),
          make_shape(2, 4, 2, 33, 150, 64, Mask::kCausal),
          make_shape(1, 2, 2, 40, 9, 64, Mask::kCausal),
          make_shape(1, 1, 1, 9, 300, 200, Mask::kNone)};
}

TEST(Fp32Reference, AgreesOnOddShapesOnTheHost) {
  for (const Dtype dtype : {Dtype::kE4M3, Dtype::kE5M2}) {
    for (const Shape& shape : odd_shapes()) {
      expect_agreement(*make_case(shape, 1, dtype), host_executor());
    }
  }
}

TEST(Fp32Reference, NanReachesTheOutput) {
  const auto data = make_case(make_shape(1, 1, 1, 5, 140, 64, Mask::kCausal), 0);
  CaseData poisoned = *data;
  constexpr std::uint8_t kNan = 0x7F;
  poisoned.k.codes[138 * 64] = kNan;  // seen by the rows 3 and 4
  const auto got = attention_fp32(poisoned, host_executor());
  ASSERT_TRUE(got.ok()) << got.status().message();
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(std::isnan(got->o[row * 64]), row >= 3) << row;
    EXPECT_EQ(std::isnan(got->lse[row]), row >= 3) << row;
  }
}

TEST(Fp32Reference, ScheduleDoesNotChangeBits) {
  const auto data = make_case(make_shape(1, 2, 1, 8, 200, 64, Mask::kNone), 0);
  const auto first = attention_fp32(*data, host_executor());
  ASSERT_TRUE(first.ok()) << first.status().message();
  for (const Schedule schedule : {Schedule::kLifo, Schedule::kRandom, Schedule::kWarpPriority}) {
    Device device = host_executor();
    device.executor =
        std::make_shared<const ExecutorOptions>(ExecutorOptions{.schedule = schedule});
    const auto again = attention_fp32(*data, device);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->o, first->o);
    EXPECT_EQ(again->lse, first->lse);
  }
}

/// The shapes of the configuration.
std::vector<Shape> configured_shapes() {
  // A sanitizer build names smaller shapes, as it does for the gates.
  const char* chosen = std::getenv("SDPA_CONFIG");
  const auto config = load_config(chosen != nullptr ? chosen : FP8_SDPA_CONFIG_FILE);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config->shapes : std::vector<Shape>{};
}

// The host executor takes some seconds per 10^8 scores: the larger shapes are the GPU's.
TEST(Fp32Reference, AgreesOnConfiguredShapesOnTheHost) {
  constexpr std::int64_t kMostScores = 8LL * 512 * 512;
  int checked = 0;
  for (const Shape& shape : configured_shapes()) {
    if (shape.batch * shape.heads_q * shape.seq_q * shape.seq_kv > kMostScores) continue;
    expect_agreement(*make_case(shape, 0), host_executor());
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

TEST(Fp32Reference, AgreesOnEveryShapeOnTheGpu) {
  const auto device = current_device();
  if (!device.ok()) {
    const char* required = std::getenv("SDPA_REQUIRE_GPU");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1") << device.status().message();
    GTEST_SKIP() << device.status().message();
  }
  std::vector<Shape> shapes = configured_shapes();
  for (const Shape& shape : odd_shapes()) shapes.push_back(shape);
  for (const Shape& shape : shapes) expect_agreement(*make_case(shape, 0), *device);
}

}  // namespace
}  // namespace fp8_sdpa::reference
